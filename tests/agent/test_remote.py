"""The program in place of ssh: real sockets, real processes."""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.agent import remote

PROGRAM = [sys.executable, "-I", "-S", remote.__file__]
KEY = remote.secret("1:job:signed", 1)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A node that answers, as its agent starts it; what it says on its own is empty."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        env = {"PATH": os.defpath, "ALLRANKS_REMOTE_SECRET": KEY, "OWN": "the node's"}
        server = subprocess.Popen(
            [*PROGRAM, "serve", str(bound.fileno())],
            pass_fds=[bound.fileno()],
            env=env,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        number = bound.getsockname()[1]
    yield number
    server.terminate()
    _, said = server.communicate(timeout=10)
    assert said == b""


def ask(
    tmp_path: Path, port: int, *words: str, key: str = KEY
) -> "subprocess.CompletedProcess[bytes]":
    table = tmp_path / "nodes.json"
    table.write_text(json.dumps({"secret": key, "nodes": {"node-1": ["127.0.0.1", port]}}))
    return subprocess.run([*PROGRAM, str(table), *words], capture_output=True, timeout=30)


def test_a_line_of_shell_runs_there_and_its_end_is_told(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "echo", '"$OWN;', '$PWD"', "; echo bad >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == b""  # mpirun reads what its daemons say from stderr
    assert done.stderr.decode() == f"the node's; {tmp_path}\nbad\n"


def test_flags_of_sshs_own_are_skipped(tmp_path: Path, port: int):
    assert ask(tmp_path, port, "-x", "-q", "node-1", "exit", "3").returncode == 3


def test_the_secret_itself_is_not_handed_on(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "env")
    assert b"OWN" in done.stderr
    assert KEY.encode() not in done.stderr


def test_a_death_by_signal_is_128_and_the_signal(tmp_path: Path, port: int):
    assert ask(tmp_path, port, "node-1", "kill -9 $$").returncode == 137


def test_a_daemon_left_behind_does_not_hold_the_caller(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "sleep 60 & echo $! >pid")
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert done.returncode == 0


def test_large_output_and_bytes_that_are_no_text(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", r"head -c 3000000 /dev/zero; printf '\377'")
    assert len(done.stderr) == 3_000_001
    assert done.stderr[-1:] == b"\xff"


def test_another_secret_runs_nothing(tmp_path: Path, port: int):
    command = f"touch {shlex.quote(str(tmp_path / 'ran'))}"
    done = ask(tmp_path, port, "node-1", command, key=remote.secret("1:job:signed", 2))
    assert done.returncode == 255
    assert b"the secret may differ" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_who_only_talks_is_not_answered(tmp_path: Path, port: int):
    assert ask(tmp_path, port, "node-1", "true").returncode == 0  # it listens
    with socket.create_connection(("127.0.0.1", port), timeout=20) as caller:
        caller.recv(32, socket.MSG_WAITALL)
        caller.sendall(b"x" * 32 + b"\xff\xff\xff\xff" + b"touch ran")
        with contextlib.suppress(OSError):  # hung up on at once
            caller.shutdown(socket.SHUT_WR)
            assert caller.recv(1) == b""
    assert ask(tmp_path, port, "node-1", "true").returncode == 0
    assert not (tmp_path / "ran").exists()


def test_a_node_of_another_job_is_unknown(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "elsewhere", "true")
    assert done.returncode == 255
    assert b"'elsewhere' is not a node of this job" in done.stderr


def test_each_attempt_has_a_secret_of_its_own_that_says_nothing_of_the_token():
    assert remote.secret("t", 1) != remote.secret("t", 2) != remote.secret("u", 2)
    assert "t" * 8 not in remote.secret("t" * 8, 1)
