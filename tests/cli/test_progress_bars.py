"""Progress bars: lines that ranks redraw with carriage returns, on terminals and in pipes."""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading

import pytest

from allranks.cli.output.rank_output import Printer, last_state
from tests.support import CLI, environment, until

# What tqdm writes for two bars, one inside the other.
NESTED = b"\router 0%\n\rinner 10%\x1b[A\n\rinner 90%\x1b[A\router 50%\n\rinner 20%\x1b[A"

BAR = """
import os, sys, time
from pathlib import Path
def shown(text, until):
    sys.stderr.write(text)
    sys.stderr.flush()
    while not Path(until).exists():
        time.sleep(0.01)
rank, folder = os.environ["RANK"], sys.argv[1]
for step in (10, 50):
    shown(f"\\r{step}% of {rank}", f"{folder}/{step}")
print(f"\\rdone by {rank}", flush=True)
shown("Continue? ", f"{folder}/end")
"""


class Screen:
    """A terminal: what a person sees of what is written to it, and every line that was seen."""

    def __init__(self, rows: int = 24, columns: int = 60) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        self.seen: set[str] = set()
        self.fd, self.other = pty.openpty()
        fcntl.ioctl(self.other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        decode, rest = codecs.getincrementaldecoder("utf-8")().decode, ""
        with contextlib.suppress(OSError):
            while data := os.read(self.fd, 65536):
                # A read may end within a character, or within what moves the cursor.
                text = rest + decode(data)
                rest = (
                    unfinished[0] if (unfinished := re.search(r"\x1b(\[[0-9;?]*)?$", text)) else ""
                )
                whole = text[: len(text) - len(rest)]
                for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]", whole):
                    self._take(part)
                self.seen.update(self.lines)

    def _take(self, part: str) -> None:
        line = self.lines[self.row]
        if part == "\r":
            self.column = 0
        elif part == "\n":
            self.row += 1
            self.lines += [""] * (self.row == len(self.lines))
        elif part in ("\x1b[J", "\x1b[K"):
            self.lines[self.row] = line[: self.column]
            if part == "\x1b[J":
                del self.lines[self.row + 1 :]
        elif part[0] == "\x1b":
            if part[-1] == "A":
                self.row -= int(part[2:-1] or 1)
        else:
            self.lines[self.row] = line[: self.column].ljust(self.column) + part
            self.lines[self.row] += line[self.column + 1 :]
            self.column += 1

    def shows(self, *lines: str) -> bool:
        return all(line in self.lines for line in lines)


def put(printer: Printer, text: bytes, rank: int = 0, attempt: int = 1) -> None:
    log = text.decode(errors="surrogateescape")
    printer.put({"log": log, "rank": rank, "attempt": attempt, "node": 0, "offset": 0})


class Pipe:
    def __init__(self) -> None:
        self.buffer, self.told = self, b""

    def isatty(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.told += data

    def flush(self) -> None:
        """Nothing is held back."""


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (b"a\n", b"a\n"),
        (b"a\r\n", b"a\r\n"),
        (b"\r10%\r20%\n", b"20%\n"),
        (b"10%\r20%\r\n", b"20%\r\n"),
        (b"\r10%\r    \rdone\n", b"done\n"),
        (b"\r\x1b[32m10%\x1b[0m\r\x1b[K\x1b[32m20%\x1b[0m\n", b"\x1b[32m20%\x1b[0m\n"),
        (b"\xff\r\xfe\n", b"\xfe\n"),
        (b"\n", b"\n"),
        (b"\r\n", b"\r\n"),
    ],
)
def test_the_last_state_of_a_line(line, state):
    assert last_state(line) == state


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_pipe_gets_the_last_state_of_each_line_once(size):
    pipe = Pipe()
    printer = Printer(1, pipe)
    text = b"first\n\r10%\r20%\r100%\nwindows\r\n\r    \rlast\r"
    for at in range(0, len(text), size):
        put(printer, text[at : at + size])
    assert pipe.told == b"first\n100%\nwindows\r\n"
    printer.end()
    assert pipe.told == b"first\n100%\nwindows\r\nlast\n"


def test_raw_output_is_what_was_written():
    pipe = Pipe()
    printer = Printer(1, pipe, raw=True)
    text = b"a\r\n\r10%\r20%\n" + NESTED + b"\n"
    put(printer, text)
    printer.end()
    assert pipe.told == text


def test_bars_within_bars_are_one_line():
    pipe = Pipe()
    printer = Printer(1, pipe)
    put(printer, b"epochs\n" + NESTED)
    assert pipe.told == b"epochs\n"
    put(printer, b"\router 100%\n\n")
    assert pipe.told == b"epochs\nouter 100%\n\n"


def test_a_new_attempt_does_not_go_on_in_a_line_of_the_one_before():
    pipe = Pipe()
    printer = Printer(1, pipe)
    put(printer, b"\r10%\r20%")
    put(printer, b"again\n", attempt=2)
    assert pipe.told == b"20%\nagain\n"


def test_a_long_line_without_end_is_held_in_linear_time():
    pipe = Pipe()
    printer = Printer(1, pipe)
    for _ in range(400):
        put(printer, b"x" * (1 << 18))
    put(printer, b"\n")
    assert len(pipe.told) == 400 * (1 << 18) + 1


@contextlib.contextmanager
def on_a_terminal(rows=24, columns=60):
    screen = Screen(rows, columns)
    with open(screen.other, "w", closefd=False) as terminal:
        yield screen, terminal
    os.close(screen.other)


def test_a_terminal_has_a_live_line_for_each_rank(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with on_a_terminal() as (screen, terminal):
        printer = Printer(1, terminal)
        put(printer, b"hello\n\r10%", rank=1)
        put(printer, b"\r20%", rank=0)
        until(lambda: screen.lines == ["rank 1 | hello", "rank 0 | 20%", "rank 1 | 10%"])
        put(printer, b"\r30%\r\x1b[K\x1b[32m40%\x1b[0m", rank=1)
        put(printer, b"\r100%\nmore\n", rank=0)
        lines = ["rank 1 | hello", "rank 0 | 100%", "rank 0 | more", "rank 1 | 40%"]
        until(lambda: screen.lines == lines)
        printer.hide()
        until(lambda: screen.lines == [*lines[:3], ""])
        printer.end()
        until(lambda: screen.lines == [*lines, ""])


def test_live_lines_never_wrap_and_leave_room(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with on_a_terminal(rows=10, columns=20) as (screen, terminal):
        printer = Printer(1, terminal)
        for rank in range(24):
            put(printer, "\r█ 深度学习 0123456789".encode(), rank=rank)
        shown = [f"rank {rank} | █ 深度学习" for rank in range(4)]
        until(lambda: screen.lines == [*shown, "… and 20 more ranks"])
        for rank in set(range(24)) - {9}:
            put(printer, b"\n", rank=rank)
        until(lambda: screen.lines[-1] == "rank 9 | █ 深度学习")
        printer.end()


def test_a_dumb_terminal_is_used_like_a_pipe(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with on_a_terminal() as (screen, terminal):
        printer = Printer(1, terminal, prefixed=False)
        put(printer, b"\r10%\r20%")
        put(printer, b"\r30%\n")
        until(lambda: screen.lines == ["30%", ""])
        assert not any("20%" in line for line in screen.seen)


@pytest.mark.slow
def test_bars_move_while_the_job_runs(home, code, allranks):
    (code / "bar.py").write_text(BAR)
    words = ("run", "-p", 2, "--name", "bars", "--", "python", "bar.py", str(code))
    screen = Screen()
    env = {**environment(home), "TERM": "xterm"}
    argv = [sys.executable, "-c", CLI, *map(str, words)]
    process = subprocess.Popen(argv, cwd=code, env=env, stdin=screen.other, stdout=screen.other)
    try:
        for step in (10, 50):
            until(lambda s=step: screen.shows(f"rank 0 | {s}% of 0", f"rank 1 | {s}% of 1"))
            (code / str(step)).touch()
        until(lambda: screen.shows("rank 0 | Continue? ", "rank 1 | Continue? "))
        (code / "end").touch()
        assert process.wait(60) == 0
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: screen.lines[-1] == "")
    last = [
        f"rank {rank} | {what}" for rank in (0, 1) for what in (f"done by {rank}", "Continue? ")
    ]
    assert sorted(screen.lines[:-1]) == sorted(last)

    # In a pipe each line once, in its last state; the log is what the ranks wrote.
    piped = allranks("job", "logs", "bars", "--rank", 0)
    assert piped.stdout == "done by 0\nContinue? \n"
    whole = "\r10% of 0\r50% of 0\rdone by 0\nContinue? "
    raw = allranks("job", "logs", "bars", "--rank", 0, "--raw", text=False)
    assert raw.stdout.decode() == whole + "\n"
    found = json.loads(allranks("job", "logs", "bars", "--rank", 0, "--json").stdout)
    assert [each["log"] for each in found] == [whole]
