"""Ask processes of ranks through the thread that `inside/allranks_inspect.py` runs in them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from allranks.agent.processes import rank_messages

_FILE = re.compile(r"^/memfd:allranks-inspect-(\d+)-(\d+)")
_HEADER = 64
_MOST = 64 << 20


class Question:
    """A question that a process was asked. ``fd`` is the file into which it writes its answer:
    one at a time, so another question waits until this one is closed."""

    def __init__(self, pid: int, fd: int, number: int) -> None:
        self._pid, self.fd, self._number = pid, fd, number

    @staticmethod
    def ask(pid: int, question: Mapping[str, Any], patience: float = 0.0) -> Question | None:
        """Ask; None if the process has no thread that answers, or none that is free within
        ``patience`` seconds."""
        until, number = time.monotonic() + patience, time.monotonic_ns()
        with contextlib.suppress(OSError):
            if (ends := _ends(pid)) is None:
                return None
            while _busy.setdefault(pid, number) != number:
                if time.monotonic() > until:
                    return None
                time.sleep(0.005)
            try:
                fd = os.open(f"/proc/{pid}/fd/{ends[0]}", os.O_RDONLY | os.O_CLOEXEC)
                asked = Question(pid, fd, number)
            except OSError:
                del _busy[pid]
                return None
            try:
                _write(pid, ends[1], {**question, "number": number})
            except OSError:
                asked.close()
                return None
            return asked
        return None

    def answer(self) -> dict[str, Any] | None:
        """The answer, or None if it has not come yet. Raises OSError, and ValueError if it is
        malformed."""
        words = os.pread(self.fd, _HEADER, 0).split()
        if len(words) != 2 or int(words[0]) != self._number:
            return None
        return rank_messages.load(os.pread(self.fd, min(int(words[1]), _MOST), _HEADER))

    def close(self) -> None:
        os.close(self.fd)
        _busy.pop(self._pid, None)


# The number of the open question of each process.
_busy: dict[int, int] = {}


def stop(pid: int) -> None:
    """Have a process end what a question has started."""
    with contextlib.suppress(OSError):
        if (ends := _ends(pid)) is not None:
            _write(pid, ends[1], {"do": "stop", "number": 0})


def _write(pid: int, pipe: str, question: Mapping[str, Any]) -> None:
    """Raises OSError."""
    end = os.open(f"/proc/{pid}/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISFIFO(os.fstat(end).st_mode):
            raise OSError(errno.EINVAL, "it is no pipe")
        os.write(end, (json.dumps(question) + "\n").encode())
    finally:
        os.close(end)


def ask_all(
    pids: Iterable[int], question: Mapping[str, Any], patience: float
) -> dict[int, dict[str, Any]]:
    """The answers of the processes that answer within ``patience`` seconds."""
    questions = {
        pid: sent for pid in pids if (sent := Question.ask(pid, question, patience)) is not None
    }
    return wait_for(questions, patience)


def is_listening(pid: int) -> bool:
    """Whether a thread of the process answers."""
    with contextlib.suppress(OSError):
        return _ends(pid) is not None
    return False


def wait_for(
    questions: Mapping[int, Question],
    patience: float,
    is_there: Callable[[int], bool] = lambda pid: True,
) -> dict[int, dict[str, Any]]:
    """The answers that come within ``patience`` seconds, from processes that are there."""
    answers: dict[int, dict[str, Any]] = {}
    until = time.monotonic() + patience
    while pending := [pid for pid in questions.keys() - answers.keys() if is_there(pid)]:
        for pid in pending:
            with contextlib.suppress(OSError, ValueError):
                if (answer := questions[pid].answer()) is not None:
                    answers[pid] = answer
        if time.monotonic() > until:
            break
        time.sleep(0.005)
    for sent in questions.values():
        sent.close()
    return answers


def _ends(pid: int) -> tuple[str, str] | None:
    """The descriptors of its file and of its pipe. Raises OSError."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            match = _FILE.match(os.readlink(f"{folder}/{name}"))
            # A fork may not have closed its parent's yet.
            if match and int(match[1]) == _own_number(pid):
                return name, match[2]
    return None


def _own_number(pid: int) -> int:
    """The process id in the namespace of the process itself."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid
