"""The link: what holds it up, and what does not, against a server of the test's own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from allranks.agent.inbox import Inbox
from allranks.agent.link import Door, Feed, Link
from allranks.agent.outbox import Outbox


class Refusing(BaseHTTPRequestHandler):
    """Takes all but metrics, for which it has no room."""

    protocol_version = "HTTP/1.1"
    heard: list[dict]
    taken: dict[str, bytes]
    over: threading.Event

    def do_GET(self):
        if self.over.wait(0.2):
            return self.answer({"error": "unauthorized"}, 401)
        return self.answer({"do": "wait", "attempt": 1, "id": "wait"})

    def do_POST(self):
        said = json.loads(self.body())
        self.heard += said
        self.answer({"acknowledged": max(each["seq"] for each in said)})

    def do_PUT(self):
        feed, data = self.path.split("/")[-1].split("?")[0], self.body()
        if feed == "metrics":
            self.answer({"error": "server", "message": "no room"}, 500)
        else:
            self.taken[feed] = data
            self.answer({"size": len(data)})

    def body(self):
        return self.rfile.read(int(self.headers["content-length"]))

    def answer(self, told, status=200):
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    Refusing.heard, Refusing.taken, Refusing.over = [], {}, threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        Refusing.over.set()
        found.shutdown()


def test_points_that_are_refused_hold_nothing_up(server, tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    link = Link(Door(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    for name in ("metrics", "resources"):
        (tmp_path / name).write_bytes(b"{}\n")
        link.feed(Feed(1, name, tmp_path / name))
    link.start()
    assert link.flush(patience=1.0)
    assert Refusing.taken == {"resources": b"{}\n"}
    assert [each["data"]["message"] for each in Refusing.heard] == [
        "not all metrics are in the record: no room"
    ]
    assert link.flush(patience=1.0)
    outbox.close()
