"""Ranks that meet another job of the host: real processes and sockets, without torch."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allranks.agent.monitoring import other_jobs, tcp_counters
from allranks.agent.monitoring.other_jobs import OtherJob, StoreWatch
from allranks.agent.processes.rank_processes import Members
from tests.support import until

pytestmark = pytest.mark.medium

# Listens on so many ports and tells them; `store` has a thread as torch's store has, and is
# its own client on the first port. Then it connects to what its input says.
SCRIPT = """
import ctypes, socket, sys, threading, time
kind, held = sys.argv[1], []
def name_thread():
    ctypes.CDLL(None).prctl(15, b"pt_tcpstore_uv")
    named.set()
    time.sleep(600)
named = threading.Event()
for _ in range(int(sys.argv[2])):
    held.append(socket.create_server(("", 0)))
ports = [each.getsockname()[1] for each in held]
def accept(server):
    while True:
        held.append(server.accept()[0])
for each in [*held]:
    threading.Thread(target=accept, args=[each], daemon=True).start()
if kind == "store":
    threading.Thread(target=name_thread, daemon=True).start()
    named.wait()
    held.append(socket.create_connection(("127.0.0.3", ports[0])))
print(*ports, flush=True)
for line in sys.stdin:
    held.append(socket.create_connection(("127.0.0.2", int(line))))
    print("connected", flush=True)
"""


def accepted(port: int) -> bool:
    """Whether the server on this port has accepted all its clients."""
    ends = (sock for sock in tcp_counters.connections() if sock.local[1] == port)
    return all(end.inode for end in ends)


class Rank:
    """A process of a job that listens on ``ports``."""

    def __init__(self, kind: str, gang: str, job: str, listens: int = 0, **env: str) -> None:
        env = {"ALLRANKS_GANG": gang, "ALLRANKS_JOB": job, **env}
        words = [sys.executable, "-c", SCRIPT, kind, str(listens)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(words, env=env, **pipes)
        self.ports = [int(word) for word in self.process.stdout.readline().split()]
        until(lambda: all(map(accepted, self.ports)))

    def connect(self, port: int) -> None:
        self.process.stdin.write(f"{port}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "connected\n"
        until(lambda: accepted(port))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rank]]:
    monkeypatch.setenv("ALLRANKS_GANG", "home.b.1")
    made: list[Rank] = []

    def start(*words: object, **env: str) -> Rank:
        made.append(Rank(*words, **env))
        return made[-1]

    yield start
    for each in made:
        each.end()


def meetings(*ranks: Rank) -> list[tuple[OtherJob, int | None]]:
    """Whom the ranks of this job meet, by their numbers from 1."""
    met: list[tuple[OtherJob, int | None]] = []
    pids = {number: [each.process.pid] for number, each in enumerate(ranks, 1)}
    watch = StoreWatch(lambda *meeting: met.append(meeting))
    members = Members(pids, [pid for several in pids.values() for pid in several])
    end = time.monotonic() + 0.5
    while not met and time.monotonic() < end:
        watch.look(members)
    return met


def test_a_rank_in_the_store_of_another_job(rank, tmp_path: Path):
    store = rank("store", "h.a.1", "A; x", 1, ALLRANKS_DEADLINE_FILE=f"{tmp_path}/deadline")
    ours = rank("plain", "home.b.1", "B", WORLD_SIZE="2")
    ours.connect(store.ports[0])
    ((other, number),) = meetings(rank("plain", "home.b.1", "B"), ours)
    assert (other.port, other.job, other.is_store, number) == (store.ports[0], "A; x", True, 2)
    assert other_jobs.joined_by(tmp_path, time.time()) is None
    other.leave_note("B")
    assert other_jobs.joined_by(tmp_path, time.time() + 9) == ("B", store.ports[0])
    assert other_jobs.joined_by(tmp_path, time.time() + 11) is None, "too long ago"


def test_connections_that_may_be_meant(rank):
    several = {"gang": "h.a.1", "job": "A"}
    service, store = rank("plain", *several.values(), 1), rank("store", *several.values(), 2)
    ours = rank("plain", "home.b.1", "B", WORLD_SIZE="2")
    ours.connect(service.ports[0])
    ours.connect(store.ports[1])
    assert meetings(ours) == [], "a server, and another port of a process that has a store"
    for size in ({}, {"WORLD_SIZE": "1"}):
        alone = rank("plain", "home.b.1", "B", **size)
        alone.connect(store.ports[0])
        assert meetings(alone) == [], "it has no other ranks to meet"
    leader = rank("store", "home.b.1", "B", 1, WORLD_SIZE="2")
    leader.connect(store.ports[0])
    follower = rank("plain", "home.b.1", "B", WORLD_SIZE="2")
    follower.connect(leader.ports[0])
    follower.connect(store.ports[0])
    assert meetings(leader, follower) == [], "the job has met in a store of its own"
    lost = rank("plain", "home.b.1", "B", WORLD_SIZE="2")
    lost.connect(leader.ports[0])
    assert meetings(lost) == [], "the store of its own job, on another node of this host"


def test_who_listens_on_the_port_that_a_rank_could_not_have(rank):
    port = rank("plain", "h.a.1", "A", 1).ports[0]
    own = rank("plain", "home.b.1", "B", 1).ports[0]
    tail = ["step 1", f"\x1b[31mOSError: [Errno 98] Address already in use: ('', {port})\x1b[0m"]
    assert other_jobs.listening(tail) == OtherJob(port, "A", is_store=False)
    assert other_jobs.listening([f"EADDRINUSE {own}"]) is None
    assert other_jobs.listening([f"listens on {port}"]) is None
    assert other_jobs.listening([]) is None


def test_connections_are_seen_from_both_ends(rank):
    server = rank("plain", "h.a.1", "A", 1)
    client = rank("plain", "home.b.1", "B")
    client.connect(server.ports[0])
    port, pid = server.ports[0], server.process.pid
    until(lambda: len(tcp_counters.of_processes([pid])) == 2)  # it has accepted
    several = tcp_counters.connections()
    (out,) = [each for each in several if each.remote[1] == port]
    (end,) = [each for each in several if each.local == out.remote and each.remote[1]]
    assert (end.remote, out.remote[0][-4:]) == (out.local, bytes([127, 0, 0, 2]))
    assert out.inode in tcp_counters.of_processes([client.process.pid])
    assert end.inode in tcp_counters.of_processes([server.process.pid])
    listener = [each.inode for each in several if each.local[1] == port and not each.remote[1]]
    assert set(listener) <= tcp_counters.of_processes([server.process.pid])
