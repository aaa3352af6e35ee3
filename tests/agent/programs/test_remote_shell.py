"""The program in place of ssh: real sockets, real processes."""

import contextlib
import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.agent.programs import remote_shell

PROGRAM = [sys.executable, "-I", "-S", remote_shell.__file__]
KEY = remote_shell.secret("1:job:signed", 1)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A node that answers, as its agent starts it; what it says on its own is empty."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        env = {"PATH": os.defpath, "ALLRANKS_REMOTE_SECRET": KEY, "OWN": "the node's"}
        env["VIRTUAL_ENV"] = "/job/1/env"
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
    _, said = server.communicate(timeout=120)
    assert said == b""


def ask(
    tmp_path: Path,
    port: int,
    *words: str,
    key: str = KEY,
    program: str = "ssh",
    work: str = "",
    env: dict[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    table = tmp_path / "nodes.json"
    nodes = {name: ["127.0.0.1", port] for name in ("node-1", "node-2")}
    table.write_text(json.dumps({"secret": key, "nodes": nodes, "work": work}))
    argv = [*PROGRAM, program, str(table), *words]
    return subprocess.run(argv, capture_output=True, timeout=30, env=env)


def test_a_line_of_shell_runs_there_and_its_end_is_told(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "echo", '"$OWN;', '$PWD"', "; echo bad >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout.decode() == f"the node's; {tmp_path}\n"
    assert done.stderr == b"bad\n"


def test_flags_of_sshs_own_are_skipped(tmp_path: Path, port: int):
    flags = ("-x", "-o", "PasswordAuthentication=no", "-oPort=1", "-p", "22")
    assert ask(tmp_path, port, *flags, "node-1", "exit", "3").returncode == 3


def test_the_secret_itself_is_not_handed_on(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "env")
    assert b"OWN" in done.stdout
    assert KEY.encode() not in done.stdout


def test_what_is_started_there_may_be_hung_up_on(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "trap; kill -HUP $$; echo lives")
    assert (done.returncode, done.stdout) == (129, b"")


def test_a_death_by_signal_is_128_and_the_signal(tmp_path: Path, port: int):
    assert ask(tmp_path, port, "node-1", "kill -9 $$").returncode == 137


def test_a_daemon_left_behind_does_not_hold_the_caller(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", "sleep 60 & echo $! >pid")
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert done.returncode == 0


def test_large_output_and_bytes_that_are_no_text(tmp_path: Path, port: int):
    done = ask(tmp_path, port, "node-1", r"head -c 3000000 /dev/zero; printf '\377'")
    assert len(done.stdout) == 3_000_001
    assert done.stdout[-1:] == b"\xff"


def test_another_secret_runs_nothing(tmp_path: Path, port: int):
    command = f"touch {shlex.quote(str(tmp_path / 'ran'))}"
    done = ask(tmp_path, port, "node-1", command, key=remote_shell.secret("1:job:signed", 2))
    assert done.returncode == 255
    assert b"the secret may differ" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_who_only_talks_is_not_answered(tmp_path: Path, port: int):
    assert ask(tmp_path, port, "node-1", "true").returncode == 0  # it listens
    with socket.create_connection(("127.0.0.1", port), timeout=120) as caller:
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


def test_paths_into_the_callers_folder_lead_into_the_nodes(tmp_path: Path, port: int):
    line = "echo /job/0/cwd/sub:/job/0/cwd /job/0/other"
    done = ask(tmp_path, port, "node-1", line, work="/job/0/cwd")
    assert done.stdout.decode() == f"{tmp_path}/sub:{tmp_path} /job/0/other\n"


def test_so_do_paths_into_its_environment(tmp_path: Path, port: int):
    line = "echo /job/0/cwd/x /job/0/env/bin/python"
    done = ask(tmp_path, port, "node-1", line, work="/job/0/cwd\x1f/job/0/env")
    assert done.stdout.decode() == f"{tmp_path}/x /job/1/env/bin/python\n"


def test_sigterm_reaches_what_was_begun_which_is_waited_for(tmp_path: Path):
    line = "trap 'echo saved; exit 4' TERM; echo up; while :; do sleep 0.05; done"
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        env = {"PATH": os.defpath, "ALLRANKS_REMOTE_SECRET": KEY}
        server = subprocess.Popen(
            [*PROGRAM, "serve", str(bound.fileno())],
            pass_fds=[bound.fileno()],
            env=env,
            start_new_session=True,
        )
        address = ("127.0.0.1", bound.getsockname()[1])
    said: list[bytes] = []

    def hear(fd: int, piece: bytes) -> None:
        said.append(piece)
        if piece == b"up\n":
            os.killpg(server.pid, 15)

    code = remote_shell.call(*address, KEY.encode(), b"\0" + line.encode(), hear)
    assert server.wait(timeout=120) == 0
    assert code == 4
    assert b"saved\n" in b"".join(said)


# ---------------------------------------------------------------- in place of pdsh


def test_pdsh_asks_all_at_once_and_says_whose_line_is_whose(tmp_path: Path, port: int):
    meet = f"touch {tmp_path}/%n; until [ -e {tmp_path}/0 -a -e {tmp_path}/1 ]; do sleep 0.05; done"
    words = ("-S", "-f", "1024", "-w", "node-1,node-2", f"{meet}; printf 'a%n\nb'; exit %n")
    done = ask(tmp_path, port, *words, program="pdsh")
    assert done.returncode == 1
    lines = {"node-1: a0", "node-1: b", "node-2: a1", "node-2: b"}
    assert set(done.stdout.decode().splitlines()) == lines
    assert done.stderr == b"allranks: pdsh: node-2: exit code 1\n"


def test_pdsh_without_s_succeeds_and_leaves_out(tmp_path: Path, port: int):
    words = ("-N", "-w", "node-1,node-2", "-x", "node-1", "echo %h; exit 3")
    done = ask(tmp_path, port, *words, program="pdsh")
    assert (done.returncode, done.stdout) == (0, b"node-2\n")


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("ssh", ["elsewhere", "true"], "'elsewhere' is not a node of this job"),
        ("pdsh", ["-w", "node-1,elsewhere", "true"], "'elsewhere' is not a node of this job"),
        ("pdsh", ["-w", "node-1"], "no command"),
        ("pdsh", ["-z"], "option -z not recognized"),
    ],
)
def test_other_hosts_are_for_the_real_program(
    tmp_path: Path, port: int, program: str, words: list[str], said: str
):
    """Where there is one, and a user's command looks for it; mpirun's is never asked."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
        (folder / program).write_text(f'#!/bin/sh\necho {folder.name} "$@"\n')
        (folder / program).chmod(0o755)
    path = f"{mine}:{theirs}"
    env = {"PATH": path, "ALLRANKS_STAND_INS": str(mine)}
    done = ask(tmp_path, port, *words, program=program, env=env)
    if "-z" not in words:
        assert done.stdout.decode() == f"theirs {' '.join(words)}\n"
    done = ask(tmp_path, port, *words, program=program, env={"PATH": path})
    assert done.returncode == 255
    assert said in done.stderr.decode()


def test_each_attempt_has_a_secret_of_its_own_that_says_nothing_of_the_token():
    token = "deadbeef" * 8
    assert len({remote_shell.secret(t, n) for t in (token, "u") for n in (1, 2)}) == 4
    assert token not in remote_shell.secret(token, 1)
    assert remote_shell.secret(token, 1) != hashlib.sha256(token.encode()).hexdigest()
