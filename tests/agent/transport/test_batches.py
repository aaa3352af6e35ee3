"""Points on resource use travel in batches: in order, once, all before the end is told, and at once
while somebody looks. What ranks log does not wait for them."""

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from allranks.agent.transport import link as link_module
from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.link import Link, ServerAddress
from allranks.agent.transport.outbox import Outbox
from allranks.agent.transport.tails import BATCH, Feed, batch_pause
from allranks.events import Kind
from allranks.statuses import Reason
from tests.support import until

PACE = 0.02


class Keeping(BaseHTTPRequestHandler):
    """Keeps points as the server does: by offset, each byte once."""

    protocol_version = "HTTP/1.1"
    kept: dict[str, bytes]
    requests: list[str]
    over: threading.Event
    order: dict[str, object]
    # Answers to requests for points that are lost, with their connection.
    lost = 0

    def do_GET(self) -> None:
        self.over.wait(PACE)
        self.requests.append("orders")
        self.answer(
            {"do": "wait", "attempt": 1, "id": "wait", "server": "", "heard": 0} | self.order
        )

    def do_POST(self) -> None:
        events = json.loads(self.body())
        self.requests += [each["kind"] for each in events]
        self.answer({"acknowledged": max(each["seq"] for each in events)})

    def do_PUT(self) -> None:
        feed, offset = self.path.rpartition("/")[2].split("?offset=")
        kept, data = self.kept.get(feed, b""), self.body()
        self.requests.append(feed)
        if int(offset) <= len(kept):
            self.kept[feed] = kept + data[len(kept) - int(offset) :]
        if type(self).lost:
            type(self).lost -= 1
            self.close_connection = True
            return
        self.answer({"size": len(self.kept[feed])})

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def answer(self, told: dict[str, object]) -> None:
        data = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Sent:
    """A link that sends the points of an attempt of an hour, and its files. For their batches no
    time passes."""

    def __init__(self, port: int, folder: Path) -> None:
        self.outbox = Outbox(folder, 1, 0)
        self.link = Link(ServerAddress(f"http://127.0.0.1:{port}", "t"), 0, self.outbox, Inbox())
        self.files = {name: folder / name for name in ("resources", "metrics")}
        for name, path in self.files.items():
            path.touch()
            times = itertools.chain((0.0,), itertools.repeat(3600.0))
            self.link.feed(Feed(1, name, path, batched=name == "resources", clock=times.__next__))
        self.link.start()

    def add(self, name: str, line: bytes) -> None:
        with self.files[name].open("ab") as file:
            file.write(line + b"\n")

    def arrives(self, name: str, line: bytes) -> None:
        until(lambda: line in Keeping.kept.get(name, b""), 10)


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    Keeping.kept, Keeping.requests, Keeping.order = {}, [], {}
    Keeping.over, Keeping.lost = threading.Event(), 0
    monkeypatch.setattr(link_module, "FEED", PACE)
    with ThreadingHTTPServer(("127.0.0.1", 0), Keeping) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = Sent(server.server_port, tmp_path)
        yield found
        Keeping.order = {"do": "leave", "id": "leave"}
        Keeping.over.set()
        server.shutdown()
        found.outbox.close()


def test_batches_get_rarer_with_age() -> None:
    ages = (0.0, 3.0, 15.0, 3600.0)
    assert [batch_pause(age, 0) for age in ages] == [0.0, 1.0, 5.0, BATCH]


def test_batches_of_a_gang_do_not_come_together() -> None:
    pauses = sorted(batch_pause(3600.0, node) for node in range(100))
    assert 0.7 * BATCH <= pauses[0] < pauses[-1] <= BATCH
    assert all(0.01 < b - a < 0.1 for a, b in itertools.pairwise(pauses))


@pytest.mark.medium
def test_resource_use_waits_for_its_batch_and_what_ranks_log_does_not(sent: Sent) -> None:
    sent.add("resources", b"1")
    sent.arrives("resources", b"1")  # the first: nothing was sent for long
    sent.add("metrics", b"1")
    sent.arrives("metrics", b"1")  # by now the link has left the first batch
    for number in (b"2", b"3"):
        sent.add("resources", number)
        sent.add("metrics", number)
        sent.arrives("metrics", number)
    assert Keeping.kept == {"resources": b"1\n", "metrics": b"1\n2\n3\n"}
    assert sent.link.flush(patience=10.0)
    assert Keeping.kept["resources"] == b"1\n2\n3\n"
    assert Keeping.requests.count("resources") == 2


@pytest.mark.medium
def test_while_somebody_looks_each_point_is_sent_at_once(sent: Sent) -> None:
    Keeping.order = {"watched": True}
    for number in (b"1", b"2", b"3"):
        sent.add("resources", number)
        sent.arrives("resources", number)
    Keeping.order = {}
    count = Keeping.requests.count("orders")
    until(lambda: Keeping.requests.count("orders") > count + 1, 10)
    sent.add("metrics", b"3")
    sent.arrives("metrics", b"3")
    sent.add("resources", b"4")
    sent.add("metrics", b"4")
    sent.arrives("metrics", b"4")
    assert Keeping.kept["resources"] == b"1\n2\n3\n"


@pytest.mark.medium
def test_a_batch_whose_answer_is_lost_is_there_once(sent: Sent) -> None:
    Keeping.lost = 2
    sent.add("resources", b"1")
    until(lambda: not Keeping.lost, 10)
    sent.add("resources", b"2")
    assert sent.link.flush(patience=10.0)
    assert Keeping.kept["resources"] == b"1\n2\n"


@pytest.mark.medium
def test_the_server_has_all_points_before_it_hears_of_the_end(sent: Sent) -> None:
    sent.add("resources", b"1")
    sent.arrives("resources", b"1")
    sent.add("resources", b"2")
    sent.outbox.say(Kind.ENDED, 1, reason=Reason.DONE)
    sent.outbox.say(Kind.DRAINED, 1)
    assert sent.link.flush(patience=10.0)
    told = [each for each in Keeping.requests if each != "orders"]
    assert told[-1] == "drained"
    assert told.count("resources") == 2
    assert Keeping.kept["resources"] == b"1\n2\n"
