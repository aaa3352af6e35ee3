"""The link: what holds it up, and what does not, against a server of the test's own."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.link import LOOK, REDRAW, Link, ServerAddress, pause_after
from allranks.agent.transport.outbox import Outbox, read
from allranks.agent.transport.tails import Feed, Tail
from allranks.events import Kind
from allranks.statuses import Reason
from tests.support import until


class Refusing(BaseHTTPRequestHandler):
    """Takes all but metrics, for which it has no room."""

    protocol_version = "HTTP/1.1"
    heard: list[dict]
    taken: dict[str, bytes]
    over: threading.Event
    logs: list[bytes]
    requests: list[list[str]]
    slow = 0.0
    room = True
    refused_logs: threading.Semaphore
    # The order that comes with the answer to events.
    order: dict | None = None
    asked = 0
    # The queries of requests for orders. Each is answered once this is set.
    queries: list[str]
    answers: threading.Event

    def do_GET(self):
        Refusing.asked += 1
        self.queries.append(self.path)
        self.answers.wait(20)
        if self.over.wait(0.2):
            return self.answer({"error": "unauthorized"}, 401)
        return self.answer({"do": "wait", "attempt": 1, "id": "wait", "server": "", "heard": 0})

    def do_POST(self):
        said = json.loads(self.body())
        if any(each["data"].get("doing") == "refused" for each in said):
            return self.answer({"error": "usage", "message": "no such text"}, 400)
        self.heard += said
        self.requests.append([each["kind"] for each in said])
        order = {} if self.order is None else {"order": self.order}
        return self.answer({"acknowledged": max(each["seq"] for each in said), **order})

    def do_PUT(self):
        feed, data = self.path.split("/")[-1].split("?")[0], self.body()
        if "/logs/" in self.path:
            time.sleep(self.slow)
            if not self.room:
                self.refused_logs.release()
                return self.answer({"error": "server", "message": "no room"}, 500)
            self.requests.append(["log"])
            offset = int(self.path.rpartition("=")[2])
            self.logs.append(data)
            self.answer({"size": offset + len(data)})
        elif feed == "metrics":
            self.answer({"error": "server", "message": "no room"}, 500)
        else:
            self.taken[feed] = data
            self.answer({"size": len(data)})
        return None

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
    Refusing.logs, Refusing.requests, Refusing.room = [], [], True
    Refusing.order, Refusing.asked = None, 0
    Refusing.queries, Refusing.answers = [], threading.Event()
    Refusing.answers.set()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        Refusing.over.set()
        found.shutdown()


@pytest.mark.medium
def test_points_that_are_refused_hold_nothing_up(server, tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    for name in ("metrics", "resources"):
        (tmp_path / name).write_bytes(b"{}\n")
        link.feed(Feed(1, name, tmp_path / name))
    link.start()
    assert link.flush(patience=1.0)
    assert Refusing.taken == {"resources": b"{}\n"}
    assert [each["data"]["message"] for each in Refusing.heard] == [
        "some metrics are missing from the record: no room"
    ]
    assert link.flush(patience=1.0)
    outbox.close()


@pytest.mark.medium
def test_an_event_that_is_refused_holds_no_other_up(server, tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    outbox.say(Kind.HELLO, 1, pid=7)
    outbox.say(Kind.ENDED, 1, rank=0, reason="RANK_EXITED", code=1, doing="refused")
    outbox.say(Kind.BYE, 1)
    link.start()
    assert link.flush(patience=20.0)
    assert [each["seq"] for each in Refusing.heard] == [1, 2, 3]
    assert [each["kind"] for each in Refusing.heard] == ["hello", "ended", "bye"]
    ended = Refusing.heard[1]["data"]
    assert (ended["reason"], ended["code"]) == ("RANK_EXITED", 1)
    assert "no such text" in ended["message"]
    outbox.close()


def test_one_that_is_refused_even_so_becomes_a_note(tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    outbox.say(Kind.ENDED, 1, rank=0, reason="x", doing="y")
    for _ in range(2):
        outbox.reduce(1, "why")
    (event,) = outbox.unacknowledged()
    assert (event.kind, event.seq, event.data.keys()) == (Kind.NOTE, 1, {"message"})
    outbox.close()


def test_what_is_said_can_always_be_stored(tmp_path):
    outbox = Outbox(tmp_path, 1, 0)
    outbox.say(Kind.NOTE, 1, message="a\udcff\0\ud800b", path=["\udcff"], value=float("nan"))
    outbox.close()
    (kept,), (on_disk,) = outbox.unacknowledged(), read(tmp_path)
    assert kept == on_disk
    assert kept.data == {"message": "a\ufffd\ufffd\ufffdb", "path": ["\ufffd"], "value": None}


@pytest.mark.medium
def test_a_line_that_is_redrawn_is_sent_at_a_bounded_rate_and_whole(server, tmp_path):
    outbox, log = Outbox(tmp_path, 1, 0), tmp_path / "log"
    log.touch()
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    link.follow(Tail(1, 0, log))
    link.start()
    began = time.monotonic()
    with log.open("wb", buffering=0) as file:
        while (passed := time.monotonic() - began) < 3 * REDRAW:
            file.write(b"\r%.3f s" % passed)
            time.sleep(LOOK / 5)
        bars = len(Refusing.logs)
        assert 2 <= bars <= 5
        file.write(b"\rdone\n")
        until(lambda: Refusing.logs[-1].endswith(b"\n"), LOOK * 3)
        file.write(b"\rmore")
    assert link.flush(patience=5.0)
    assert b"".join(Refusing.logs) == log.read_bytes()
    outbox.close()


@pytest.mark.medium
def test_a_slow_server_is_asked_less_often(server, tmp_path, monkeypatch):
    assert [pause_after(took) for took in (0.001, 0.05, 9.0)] == [LOOK, 0.5, 2.0]
    monkeypatch.setattr(Refusing, "slow", LOOK / 2)
    outbox, log = Outbox(tmp_path, 1, 0), tmp_path / "log"
    log.touch()
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    link.follow(Tail(1, 0, log))
    link.start()
    began, lines = time.monotonic(), 0
    with log.open("wb", buffering=0) as file:
        while time.monotonic() - began < 1.5:
            file.write(b"%d\n" % (lines := lines + 1))
            time.sleep(LOOK / 5)
    assert len(Refusing.logs) <= 4  # each LOOK it would be 10 or so
    assert link.flush(patience=5.0)
    assert b"".join(Refusing.logs) == log.read_bytes()
    outbox.close()


def connected(server, outbox, log):
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    link.follow(Tail(1, 0, log))
    link.start()
    return link


@pytest.mark.medium
def test_the_events_of_a_short_job_travel_together(server, tmp_path):
    outbox, log = Outbox(tmp_path, 1, 0), tmp_path / "log"
    log.write_bytes(b"said\n")
    assert not outbox.say(Kind.HELLO, 1)
    assert outbox.say(Kind.READY, 1)  # the gate waits for it
    assert not outbox.say(Kind.STARTED, 1)
    assert not outbox.say(Kind.RANK_ENDED, 1, rank=0, code=0)
    assert outbox.say(Kind.ENDED, 1, reason=Reason.RANK_EXITED)  # the other nodes wait for it
    assert not outbox.say(Kind.ENDED, 1, reason=Reason.DONE)
    assert not outbox.say(Kind.DRAINED, 1)
    assert not outbox.say(Kind.BYE, 1)
    link = connected(server, outbox, log)
    assert link.flush(patience=5.0)
    kinds = ["hello", "ready", "started", "rank_ended", "ended", "ended", "drained", "bye"]
    assert Refusing.requests == [["log"], kinds]
    outbox.close()


@pytest.mark.medium
def test_drained_is_sent_after_the_logs(server, tmp_path):
    outbox, log = Outbox(tmp_path, 1, 0), tmp_path / "log"
    Refusing.room, Refusing.refused_logs = False, threading.Semaphore(0)
    log.write_bytes(b"said\n")
    outbox.say(Kind.ENDED, 1, reason="RANK_EXITED")
    outbox.say(Kind.DRAINED, 1)
    outbox.say(Kind.BYE, 1)
    link = connected(server, outbox, log)
    link.wake()
    for _ in range(2):
        assert Refusing.refused_logs.acquire(timeout=20)
    assert Refusing.requests == [["ended"]]
    Refusing.room = True
    assert link.flush(patience=5.0)
    assert Refusing.requests == [["ended"], ["log"], ["drained", "bye"]]
    outbox.close()


GO = {"do": "go", "attempt": 1, "id": "go", "server": "", "heard": 0}


@pytest.mark.medium
def test_the_order_of_a_short_job_comes_with_the_answer_to_ready(server, tmp_path):
    outbox, inbox = Outbox(tmp_path, 1, 0), Inbox()
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, inbox)
    Refusing.order = GO
    outbox.say(Kind.READY, 1)
    link.start()
    link.wake()
    until(lambda: inbox.order["do"] == "go")
    assert Refusing.asked == 0
    until(lambda: Refusing.asked > 0)  # a longer one asks for orders even so
    outbox.close()


@pytest.mark.medium
def test_without_that_a_ready_node_asks_at_once(server, tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.agent.transport.link._FIRST", 60.0)
    outbox = Outbox(tmp_path, 1, 0)
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, Inbox())
    outbox.say(Kind.HELLO, 1)
    link.start()
    assert link.flush(patience=5.0)
    assert Refusing.asked == 0
    outbox.say(Kind.READY, 1)
    link.wake()
    until(lambda: Refusing.asked > 0)
    outbox.close()


@pytest.mark.medium
def test_an_answer_from_before_that_order_does_not_replace_it(server, tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.agent.transport.link._FIRST", 0.0)
    Refusing.order = GO
    Refusing.answers.clear()
    outbox, inbox = Outbox(tmp_path, 1, 0), Inbox()
    link = Link(ServerAddress(f"http://127.0.0.1:{server.server_port}", "t"), 0, outbox, inbox)
    link.start()
    until(lambda: Refusing.asked == 1)
    outbox.say(Kind.READY, 1)
    link.wake()
    until(lambda: inbox.order["do"] == "go")
    Refusing.answers.set()
    until(lambda: Refusing.asked > 1)
    assert "known=go&" in Refusing.queries[1]
    outbox.close()


@pytest.mark.parametrize(
    ("has", "comes", "then"),
    [
        ({"do": "wait", "attempt": 1}, GO, "go"),
        ({"do": "prepare", "attempt": 1}, GO, "go"),
        ({"do": "stop", "attempt": 1}, GO, "stop"),
        ({"do": "leave", "attempt": 1}, GO, "leave"),
        ({"do": "wait", "attempt": 1}, {**GO, "attempt": 2}, "wait"),
        ({"do": "wait", "attempt": 1}, {**GO, "do": "wait"}, "wait"),
    ],
)
def test_that_order_replaces_no_later_one(tmp_path, has, comes, then):
    outbox, inbox = Outbox(tmp_path, 1, 0), Inbox()
    inbox.put({"id": "x", "server": "", "heard": 0, **has})
    Link(ServerAddress("http://127.0.0.1:1", "t"), 0, outbox, inbox)._go(comes)
    assert inbox.order["do"] == then
    outbox.close()
