"""What counts as work of a process, and what as waiting: real processes, and a clock of our own."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent.monitoring import tcp_counters
from allranks.agent.monitoring.idle_ranks import Bucket, IdleRanks
from tests.support import until


def test_bursts_of_a_heartbeat_are_no_work_and_a_steady_little_is():
    heartbeat, steady = Bucket(0.02, 0.25), Bucket(0.02, 0.25)
    for second in range(1000):
        assert not heartbeat.works(0.1 * (second // 15), 1.0)
    assert any(steady.works(0.1 * second, 1.0) for second in range(6))


def test_what_connections_carry_is_known_by_whose_they_are():
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as one, server.accept()[0] as other:
        inode = int(Path(f"/proc/self/fd/{one.fileno()}").readlink().name[8:-1])
        assert inode in tcp_counters.of_processes([_own()])
        before = tcp_counters.carried()[inode]
        other.sendall(b"x" * 5000)
        one.recv(5000, socket.MSG_WAITALL)
        assert tcp_counters.carried()[inode] - before >= 5000


def _own() -> int:
    return int(Path("/proc/self").readlink().name)


@pytest.mark.medium
def test_who_prints_and_who_rests_is_told_once_it_lasts(tmp_path: Path):
    told: list[dict[str, list[float]]] = []
    logs = {rank: tmp_path / f"{rank}.log" for rank in (0, 1)}
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    processes = [subprocess.Popen(words) for _ in logs]
    try:
        roots = {rank: each.pid for rank, each in enumerate(processes)}
        eyes = IdleRanks(0, 1.0, logs, lambda: roots, told.append)

        def looked() -> bool:
            with logs[1].open("a") as log:
                log.write(".")
            eyes.look({})
            return bool(told)

        until(looked)
        assert list(told[-1]) == ["0"]
        printed, _, moved, gpu = told[-1]["0"]
        assert min(printed, moved) >= 0.5
        assert gpu is None
        logs[0].write_text("again")
        until(lambda: looked() and not told[-1])
    finally:
        for each in processes:
            each.kill()
            each.wait()
