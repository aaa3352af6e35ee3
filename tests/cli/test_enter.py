"""`allranks job exec`, `shell`, `port-forward` and `cp`: real programs, terminals and ports in real
jobs, and who may not."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import allranks as sdk
from tests.support import CLI, PATIENCE, Allranks, environment, kill_agents, kill_server, until

pytestmark = pytest.mark.slow

TRAIN = """\
import os, time
open("made", "w").write("by rank " + os.environ.get("RANK", "0"))
print("up", flush=True)
time.sleep(600)
"""


def start(allranks: Allranks, code: Path, name: str, nodes: int = 1, *words: object) -> None:
    (code / "train.py").write_text(TRAIN)
    started = ("-n", nodes, "--detach", "--name", name, *words, "--", "python", "train.py")
    assert allranks("run", *started).returncode == 0
    until(lambda: allranks("job", "logs", name).stdout.count("up") == nodes)


def entries(allranks: Allranks, name: str) -> list[dict[str, Any]]:
    events = json.loads(allranks("job", "events", name, "--json").stdout)
    return [each for each in events if each["kind"] == "entered"]


def processes(word: str) -> list[int]:
    found = []
    for each in psutil.process_iter(["cmdline"]):
        if word in " ".join(each.info["cmdline"] or ()):
            found.append(each.pid)
    return found


class Terminal:
    """The command line in a terminal of its own."""

    def __init__(self, home: Path, *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-c", CLI, *words], environment(home))
        self.seen = b""

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def expect(self, text: bytes) -> None:
        """Wait for that output, and forget what came up to it."""
        end = time.monotonic() + 30 * PATIENCE
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-2000:]
            if select.select([self.fd], [], [], 1.0)[0]:
                try:
                    self.seen = self.seen[-(1 << 16) :] + os.read(self.fd, 1 << 16)
                except OSError as error:
                    raise AssertionError(f"it has ended: {self.seen[-2000:]!r}") from error
        self.seen = self.seen.partition(text)[2]

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        try:
            while os.read(self.fd, 1 << 16):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_program_runs_where_its_rank_does(shared: Allranks, shared_home: Path, code: Path):
    start(shared, code, "entered", 2)
    shown = 'cat made; echo " $RANK"; echo no >&2; exit 7'
    done = shared("job", "exec", "entered", "--rank", 1, "--", "sh", "-c", shown)
    assert (done.stdout, done.stderr, done.returncode) == ("by rank 1 1\n", "no\n", 7)
    done = shared("job", "exec", "entered", "--node", 1, "--", "wc", "-c", input="x" * 3_000_000)
    assert done.stdout.strip() == "3000000"
    # Bytes stay bytes, and what a program leaves running ends with it.
    binary = ["head", "-c", "1000000", "/dev/urandom"]
    left = ["sh", "-c", "sleep 987654 & echo left"]
    assert "left" in shared("job", "exec", "entered", "--", *left).stdout
    until(lambda: not processes("sleep 987654"))
    assert shared("job", "exec", "entered", "--", "nonsuch").returncode == 127
    assert shared("job", "exec", "entered", "--", "kill -9 $$").returncode == 127
    assert shared("job", "exec", "entered", "--", "sh", "-c", "kill -9 $$").returncode == 137
    answer = json.loads(shared("job", "exec", "entered", "--json", "--", "sh", "-c", shown).stdout)
    assert answer == {"exit_code": 7, "stdout": "by rank 0 0\n", "stderr": "no\n"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(shared_home).items():
            patch.setenv(name, value)
        job = sdk.Client().jobs.get("entered")
        assert len(job.exec(binary, rank=1).stdout) == 1_000_000
        assert job.exec(["cat"], input=b"\0\xff").stdout == b"\0\xff"
    (first, *_) = entries(shared, "entered")
    assert (first["rank"], first["node"], first["data"]["by"]) == (1, 1, "owner")
    assert first["data"]["message"].startswith("exec: sh -c 'cat made")
    for words, why in (
        (("--rank", 9), "has no rank 9"),
        (("--node", 9), "has no node 9"),
        (("--rank", 0, "--node", 0), "a rank or a node"),
    ):
        refused = shared("job", "exec", "entered", *words, "--", "true")
        assert refused.returncode == 2
        assert why in refused.stderr, refused.stderr
        assert "hint" in refused.stderr
    assert shared("job", "cancel", "entered").returncode == 0
    shared("job", "wait", "entered")
    refused = shared("job", "exec", "entered", "--", "true")
    assert (refused.returncode, "has ended" in refused.stderr) == (2, True)


@pytest.mark.end_to_end
def test_a_shell_is_a_terminal(shared: Allranks, shared_home: Path, code: Path):
    start(shared, code, "shelled")
    first, second = (Terminal(shared_home, "job", "shell", "shelled") for _ in range(2))
    first.expect(b"shelled rank 0")
    second.expect(b"shelled rank 0")
    first.press(b"tty && cat made\r")
    first.expect(b"/dev/pts/")
    first.expect(b"by rank 0")
    # Ctrl-C is the program's.
    first.press(b"echo be'gin'; sleep 987650; echo en'd'\r")
    first.expect(b"begin")
    # Before it is the terminal's program, bash may take the signal, and wait for it all the same.
    until(lambda: processes("sleep 987650"))
    first.press(b"\x03")
    first.expect(b"# " if os.geteuid() == 0 else b"$ ")
    # One is made larger, and the other one is not.
    fcntl.ioctl(first.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    first.press(b"while [ $(stty size | cut -d' ' -f1) != 33 ]; do :; done; stty size\r")
    first.expect(b"33 77")
    second.press(b"stty size; echo do'ne'\r")
    second.expect(b"done")
    assert b"33 77" not in second.seen
    # A flood of bytes arrives whole.
    first.press(b"head -c 3000000 /dev/urandom | od | tail -n 1; echo flo'od'\r")
    first.expect(b"flood")
    first.press(b"head -c 3000000 /dev/urandom; stty sane; echo flo'od'\r")
    first.expect(b"flood")
    first.press(b"exit 3\r")
    assert first.ended() == 3
    # Whatever runs, Enter and `~.` leave; nothing stays.
    second.press(b"trap '' HUP INT; echo wai'ts'; sleep 987653\r")
    second.expect(b"waits")
    second.press(b"\r~.")
    assert second.ended() == 0
    until(lambda: not processes("sleep 987653"))
    # Without a terminal it reads commands.
    assert shared("job", "shell", "shelled", input="cat made; exit 4\n").returncode == 4
    assert shared("job", "cancel", "shelled").returncode == 0


def test_a_job_that_prepares_can_be_entered(allranks: Allranks, code: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the input does not come
        job = {"environment": "current", "command": "cat ${{inputs.i}}", "name": "slow"}
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.bin"
        job["inputs"] = {"i": {"type": "uri_file", "path": url, "mode": "download"}}  # type: ignore[assignment]
        job["environment_variables"] = {"X": "1"}  # type: ignore[assignment]
        (code / "job.yml").write_text(json.dumps(job))
        assert allranks("job", "create", "-f", "job.yml").returncode == 0
        until(lambda: allranks("job", "exec", "slow", "--", "true").returncode == 0)
        done = allranks("job", "exec", "slow", "--", "sh", "-c", "echo $X")
        assert done.stdout == "1\n"
        assert "rank 0 has not started: this is node 0 as it is now" in done.stderr
        assert allranks("job", "cancel", "slow").returncode == 0


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that answers with what it gets, once that has ended, in capitals."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(accepted,), daemon=True).start()

        def answer(accepted: socket.socket) -> None:
            with accepted, accepted.makefile("rwb") as file:
                file.write(file.read().upper())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def exchange(address: str, data: bytes) -> bytes:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        sender = threading.Thread(target=send, args=(connection, data))
        sender.start()
        with connection.makefile("rb") as file:
            answer = file.read()
        sender.join()
        return answer


def send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def test_a_port_of_a_rank_is_here(allranks: Allranks, code: Path, home: Path, listening: int):
    start(allranks, code, "one")
    nobody = socket.create_server(("127.0.0.1", 0))
    words = ["job", "port-forward", "one"]
    argv = [sys.executable, "-c", CLI, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*argv, f"0:{listening}"], env=environment(home), stdout=pipe, stderr=pipe, text=True
    ) as forward:
        assert forward.stdout is not None
        address = forward.stdout.readline().strip()
        large = b"ab" * 4_000_000
        assert exchange(address, large) == large.upper()
        answers: list[bytes] = []
        several = [
            threading.Thread(target=lambda: answers.append(exchange(address, b"x")))
            for _ in range(12)
        ]
        for each in several:
            each.start()
        for each in several:
            each.join()
        assert answers == [b"X"] * 12
        forward.send_signal(signal.SIGINT)
        assert forward.wait(60) == 130
    port = nobody.getsockname()[1]
    nobody.close()
    with subprocess.Popen(
        [*argv, f"0:{port}"], env=environment(home), stdout=pipe, stderr=pipe, text=True
    ) as forward:
        assert forward.stdout is not None
        assert forward.stderr is not None
        assert exchange(forward.stdout.readline().strip(), b"") == b""
        forward.stderr.readline()
        assert f"nothing answers on port {port}" in forward.stderr.readline()
        # The job's end is the end of it.
        assert allranks("job", "cancel", "one").returncode == 0
        assert forward.wait(60) == 2
        assert "error: one is Canceled" in forward.stderr.read()
    until(lambda: not processes("allranks.agent.channel"))
    (event, _) = entries(allranks, "one")
    assert event["data"]["message"] == f"port {listening}"
    for words_ in (("one", "x"), ("one", "0"), ("one", "99999")):
        assert allranks("job", "port-forward", *words_).returncode == 2


def test_files_go_in_and_out(allranks: Allranks, code: Path, tmp_path: Path):
    start(allranks, code, "one")
    folder = tmp_path / "there it's"
    (folder / "in ner").mkdir(parents=True)
    (folder / "in ner" / "file\nname").write_bytes(os.urandom(3_000_000))
    (folder / "link").symlink_to("in ner")
    (folder / "same").hardlink_to(folder / "in ner" / "file\nname")
    os.utime(folder / "in ner", ns=(10**18 + 10**8, 10**18 + 10**8))
    assert allranks("job", "cp", folder, "one:into/copy").returncode == 0
    assert allranks("job", "cp", "one:into/copy", tmp_path / "back").returncode == 0
    # Python's tar has floats.
    assert abs((tmp_path / "back" / "in ner").stat().st_mtime_ns - 10**18 - 10**8) < 10**6
    same = subprocess.run(["diff", "-r", folder, tmp_path / "back"], capture_output=True)
    assert same.returncode == 0, same.stdout
    assert allranks("job", "cp", "one:made", tmp_path).returncode == 0
    assert (tmp_path / "made").read_text() == "by rank 0"
    (tmp_path / "made").write_text("new")
    assert allranks("job", "cp", tmp_path / "made", "one:.").returncode == 0
    assert allranks("job", "exec", "one", "--", "cat", "made").stdout == "new"
    # A folder that is a link, as the one of the job's outputs.
    put = "mkdir -p outputs/d; echo 1 >outputs/d/x; ln outputs/d/x outputs/same"
    assert allranks("job", "exec", "one", "--", "sh", "-c", put).returncode == 0
    for path, named in (("outputs", "outputs"), ("outputs/", "outputs"), ("outputs", "other")):
        done = allranks("job", "cp", f"one:{path}", tmp_path / named)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / named / "d" / "x").read_text() == "1\n"
        assert (tmp_path / named / "same").read_text() == "1\n"
        shutil.rmtree(tmp_path / named)
    whole = allranks("job", "cp", "one:", tmp_path / "whole")
    assert "left out" not in whole.stderr, whole.stderr
    assert (tmp_path / "whole" / "outputs" / "d" / "x").read_text() == "1\n"
    assert allranks("job", "cp", "one:outputs/.", tmp_path).returncode == 0
    assert (tmp_path / "d" / "x").read_text() == "1\n"
    (tmp_path / "odd:name").write_text("odd")
    assert allranks("job", "cp", tmp_path / "odd:name", "one:odd").returncode == 0
    for words, why in (
        (("one:nonsuch", tmp_path), "has no 'nonsuch': tar: nonsuch: Cannot stat"),
        (("one:a", "one:b"), "only one of the two may"),
        ((tmp_path / "nonsuch", "one:."), "does not exist"),
        (("one:made", tmp_path / "no" / "x"), "does not exist"),
        (("a", "b"), "NAME:PATH"),
        ((tmp_path / "made", "one:/proc/nonsuch/x"), "cannot write"),
    ):
        refused = allranks("job", "cp", *words)
        assert refused.returncode == 2
        assert why in refused.stderr, refused.stderr


def test_only_the_owner_and_admins_get_in(allranks: Allranks, code: Path):
    start(allranks, code, "one")
    url = json.loads(allranks("server", "status", "--json").stdout)["url"]
    for role, code_ in (("reader", 2), ("member", 2), ("admin", 0)):
        made = allranks("server", "token", "create", f"a-{role}", "--role", role, "--json")
        token = json.loads(made.stdout)["token"]
        env = {"ALLRANKS_SERVER": url, "ALLRANKS_TOKEN": token}
        assert allranks("job", "exec", "one", "--", "true", env=env).returncode == code_
    assert [each["data"]["by"] for each in entries(allranks, "one")] == ["a-admin"]
    # What the job itself has opens nothing.
    shown = "tr '\\0' '\\n' </proc/$PPID/environ; env"
    inside = allranks("job", "exec", "one", "--", "sh", "-c", shown).stdout.splitlines()
    tokens = {line.partition("=")[2] for line in inside if "TOKEN" in line}
    for token in tokens:
        env = {"ALLRANKS_SERVER": url, "ALLRANKS_TOKEN": token}
        refused = allranks("job", "exec", "one", "--", "true", env=env)
        assert refused.returncode == 2, token


@pytest.mark.parametrize("victim", ["client", "agent", "server"])
def test_nothing_is_left_after_a_kill(allranks: Allranks, code: Path, home: Path, victim: str):
    start(allranks, code, "one")
    mark = f"sleep 98765{len(victim)}"
    terminal = Terminal(home, "job", "shell", "one")
    terminal.expect(b"one rank 0")
    terminal.press(f"trap '' HUP; setsid {mark} & {mark}\r".encode())
    until(lambda: len(processes(mark)) >= 2)
    if victim == "client":
        os.kill(terminal.pid, signal.SIGKILL)
        assert terminal.ended() == -signal.SIGKILL
    else:
        kill_agents(home, "one") if victim == "agent" else kill_server(home)
        assert terminal.ended() == 2
    until(lambda: not processes(mark))
    if victim != "agent":
        assert allranks("job", "exec", "one", "--", "cat", "made").stdout == "by rank 0"
