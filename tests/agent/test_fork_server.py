"""The process that forks agents."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent.programs.allranks_warm.wire import connect, send
from allranks.engines.local import fork_server
from allranks.engines.local.fork_server import ForkServer
from allranks.settings import Home
from tests.support import until


def test_it_ends_quietly_when_its_engine_is_killed_before_it_reads_an_answer(tmp_path):
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        # What lies unread when the other end closes: the kernel then says "connection reset".
        its.send(b"unread")
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "allranks.agent.fork_server"],
            stdin=its.fileno(),
            env={**os.environ, "ALLRANKS_WARM": str(tmp_path / "warm")},
            stderr=subprocess.PIPE,
            text=True,
        )
    ours.close()
    assert server.communicate(timeout=60) == (None, "")
    assert server.returncode == 0


@pytest.mark.medium
def test_it_waits_for_no_agent_that_has_connected_and_says_nothing_yet(tmp_path):
    with contextlib.closing(ForkServer(Home(tmp_path))) as server:
        server.start()
        silent, other = (_connected(tmp_path / "warm" / "start.sock") for _ in range(2))
        with silent, other:
            assert _started(other, tmp_path) != _started(silent, tmp_path)


def test_an_agent_has_the_environment_that_it_was_given_and_nothing_else():
    given = {"CHANGED": "new \udcff", "KEPT": "same", "NEW": ""}
    shows = (
        "import json, os, subprocess, sys\n"
        "from allranks.agent import fork_server\n"
        "fork_server._change_environment(json.loads(sys.argv[1]))\n"
        "below = subprocess.run(['env', '-0'], stdout=subprocess.PIPE).stdout\n"
        "print(json.dumps([dict(os.environ), os.fsdecode(below).split(chr(0))]))\n"
    )
    before = {**os.environ, "CHANGED": "old", "KEPT": "same", "REMOVED": "x"}
    path = os.environ["PATH"]
    argv = [sys.executable, "-c", shows, json.dumps({**given, "PATH": path})]
    found, below = json.loads(subprocess.check_output(argv, env=before))
    assert found == {**given, "PATH": path}
    assert set(below) == {"", *(f"{name}={value}" for name, value in found.items())}


def _connected(path: Path) -> socket.socket:
    connections: list[socket.socket] = []
    until(lambda: connections.extend(filter(None, [connect(str(path))])) or connections)
    return connections[0]


def _started(connection: socket.socket, folder: Path) -> int:
    send(connection, {"argv": ["true"], "env": {}, "log": str(folder / "log")})
    return int(json.loads(connection.recv(4096))["pid"])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("used", "starts"), [((), True), (("slurm", "local"), True), (("slurm",), False)]
)
def test_it_starts_before_its_engine_where_this_machine_runs_jobs(tmp_path, used, starts):
    home = Home(tmp_path)
    for name in used:
        (home.engines / name).mkdir(parents=True)
    fork_server.start_early(home)
    with contextlib.closing(fork_server.of(home)) as server:
        started = home.warm / "start.sock"
        if starts:
            until(started.exists)
        assert started.exists() == starts
        server.start()
        until(started.exists)
