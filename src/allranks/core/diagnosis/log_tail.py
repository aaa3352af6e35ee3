"""The cause of one rank's failure, from how it ended and the end of its log. Pure.

How it ended counts first: an exception does not explain a signal, and the exit codes of a shell say
what the shell could not do. Then the uncaught exception. Errors that the program survived are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from allranks.core.diagnosis import tracebacks
from allranks.core.diagnosis.causes import TABLE, Cause
from allranks.core.diagnosis.exceptions import filled, match_exception
from allranks.core.diagnosis.launcher_messages import (
    FROM_A_SHELL,
    MESSAGES,
    WINDOWS_LINES,
    WITHOUT_THEM,
)
from allranks.core.diagnosis.tracebacks import Raised

# With what a shell ends after a command that SIGINT ended.
_SHELL_INTERRUPTED = 130
# The last message of a shell, linker or runtime is within so many lines of the end.
_NEAR = 40


class Ending(NamedTuple):
    """How a process ended: ``code`` is 128 + N after signal N, None while it runs. ``kills`` counts
    the processes that the kernel's out-of-memory killer ended on its node at about that time.
    ``behind_pipe``: as in api.events.RankEndedData."""

    code: int | None
    signal: str | None = None
    kills: int = 0
    behind_pipe: bool = False


class Finding(NamedTuple):
    """The cause of a rank's failure. An empty ``fix`` stands for that of the cause. ``at`` is the
    index of the line that shows it, if any; ``where`` the user's line of code (`FILE:LINE`);
    ``exception`` the name of the exception, if it was one."""

    cause: Cause
    fix: str = ""
    at: int | None = None
    where: str = ""
    exception: str = ""

    @property
    def is_echo(self) -> bool:
        """Whether it may be the consequence of a failure on another rank."""
        return TABLE[self.cause].echo


# What runtimes print when they abort.
_WHAT = r"\s*what\(\):"
_ABORTS = (
    (Cause.COLLECTIVE_TIMEOUT, re.compile(r".*Watchdog caught collective operation timeout")),
    (Cause.COLLECTIVE_MISMATCH, re.compile(_WHAT + r".*op\.preamble\.length <= op\.nbytes")),
    (Cause.PEER_LOST, re.compile(_WHAT + r".*NCCL error:? .*remote process exited")),
    (Cause.GPU_FAULT, re.compile(_WHAT + r".*CUDA error: uncorrectable (?:ECC|NVLink)")),
    (Cause.CUDA_OUT_OF_MEMORY, re.compile(_WHAT + r".*CUDA (?:error: )?out of memory")),
    (Cause.ILLEGAL_GPU_ACCESS, re.compile(_WHAT + r".*CUDA error: an illegal memory access")),
    (Cause.DEVICE_ASSERT, re.compile(_WHAT + r".*CUDA error: device-side assert triggered")),
    (
        Cause.MEMORY_REFUSED,
        re.compile(r"\s*what\(\):\s+std::bad_alloc|.*instance of 'std::bad_all"),
    ),
)
# C++ prints it if a thread still runs when the process exits: after whatever ended the script.
_THREAD_LEFT = re.compile(r"terminate called without an active exception")
_DEAD = re.compile(
    r"Fatal Python error: |terminate called|\s*what\(\):|.*Assertion `.*failed|"
    r"free\(\): |malloc\w*\(\): |munmap_chunk|double free|corrupted|\*\*\* stack smash"
)

_SIGNALS = {
    "SIGSEGV": Cause.SEGMENTATION_FAULT,
    "SIGILL": Cause.ILLEGAL_INSTRUCTION,
    "SIGFPE": Cause.ARITHMETIC_FAULT,
    "SIGBUS": Cause.BUS_ERROR,
    "SIGABRT": Cause.ABORTED,
    "SIGKILL": Cause.KILLED,
    "SIGTERM": Cause.TERMINATED,
    "SIGINT": Cause.TERMINATED,
    "SIGHUP": Cause.TERMINATED,
}
_NUMBERS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"} | {
    15: "SIGTERM",
    2: "SIGINT",
    1: "SIGHUP",
}
_OOM_OF_SLURM = re.compile(r"slurmstepd: error: Detected \d+ oom[_ -]kill event")

_ROOT_RANK = re.compile(r"rank\s*: (\d+)")
_ROOT_CODE = re.compile(r"exitcode\s*: (-?\d+)")
# How torchrun, multiprocessing, subprocess and DataLoader report a child killed by a signal.
_CHILD = re.compile(
    r"(?:process \d+ terminated with signal|died with <Signals\.|is killed by signal:|"
    r"terminated with exit code:? -|exitcode:? -) ?(\w+)"
)
_SIGNAL_WORDS = {
    "Killed": "SIGKILL",
    "Segmentation": "SIGSEGV",
    "Bus": "SIGBUS",
    "Aborted": "SIGABRT",
    "Terminated": "SIGTERM",
    "Illegal": "SIGILL",
    "Floating": "SIGFPE",
}
# Exceptions that only report the failure of a child process.
_CHILD_FAILED = (
    "ChildFailedError",
    "ProcessExitedException",
    "CalledProcessError",
    "BrokenProcessPool",
)


def finding(lines: Sequence[str], ending: Ending) -> Finding | None:
    """The cause of a rank's failure; None if it exited with 0 or the cause is not evident."""
    if ending.code == 0:
        return None
    if ending.signal is not None:
        return _from_signal(lines, ending.signal, ending)
    return (
        _windows_lines(lines, ending)
        or _launcher_message(lines, ending)
        or _uncaught(lines, ending)
    )


def finding_before_stop(lines: Sequence[str]) -> Finding | None:
    """What had already failed in a rank that was then stopped because of another rank."""
    finding = _uncaught(lines, Ending(None))
    stopped = finding is not None and finding.exception in ("KeyboardInterrupt", "SystemExit")
    return None if stopped else finding


# ---------------------------------------------------------------- signals


def _from_signal(lines: Sequence[str], name: str, ending: Ending) -> Finding:
    cause = _SIGNALS.get(name, Cause.UNKNOWN)
    oom = _last_of(lines, _OOM_OF_SLURM)
    if cause is Cause.KILLED and (ending.kills or oom is not None):
        return Finding(Cause.OUT_OF_MEMORY, at=oom)
    if cause is Cause.ABORTED:
        return _aborted(lines)
    if cause in (Cause.SEGMENTATION_FAULT, Cause.BUS_ERROR, Cause.ILLEGAL_INSTRUCTION):
        fatal = _last_of(lines, re.compile(r"Fatal Python error: |Current thread 0x"))
        return Finding(cause, at=fatal, where=_native_frame(lines))
    return Finding(cause)


def _native_frame(lines: Sequence[str]) -> str:
    """The user's innermost line of code in the output of faulthandler."""
    for line in lines[-200:]:
        frame = re.match(r'\s+File "([^"]+)", line (\d+)(?: in |$)', tracebacks.unmarked(line)[1])
        if frame and tracebacks.is_user_code(frame[1]):
            return f"{frame[1]}:{frame[2]}"
    return ""


def _aborted(lines: Sequence[str]) -> Finding:
    """An abort may be caused by the exception printed before it."""
    finding = _uncaught(lines, Ending(1))
    left = _last_of(lines, _THREAD_LEFT)
    unsure = (Cause.UNKNOWN,) if left is not None else (Cause.UNKNOWN, Cause.SCRIPT_EXCEPTION)
    if finding is not None and finding.cause not in unsure:
        return finding
    for cause, pattern in _ABORTS:
        at = _last_of(lines, pattern)
        if at is not None:
            return Finding(cause, at=at)
    if left is not None:
        return Finding(Cause.ABORTED_AT_EXIT, at=left)
    return Finding(Cause.ABORTED, at=_last_of(lines, _DEAD))


# ---------------------------------------------------------------- last lines


def _windows_lines(lines: Sequence[str], ending: Ending) -> Finding | None:
    """A shell that could not read its script: all its other messages follow from that."""
    texts = [tracebacks.unmarked(line)[1] for line in lines[-_NEAR:]]
    last = next((text for text in reversed(texts) if text.strip()), "")
    if ending.code not in (2, 127) or not FROM_A_SHELL.match(last):
        return None
    for index, text in enumerate(texts, max(0, len(lines) - _NEAR)):
        if match := WINDOWS_LINES.match(text):
            return Finding(Cause.NOT_EXECUTABLE, filled(WITHOUT_THEM, match), index)
    return None


def _launcher_message(lines: Sequence[str], ending: Ending) -> Finding | None:
    for index in range(len(lines) - 1, max(-1, len(lines) - 1 - _NEAR), -1):
        line = tracebacks.unmarked(lines[index])[1]
        for message in MESSAGES:
            if message.codes and ending.code not in message.codes:
                continue
            match = message.line.match(line)
            if match is not None and _is_last(lines, index, ending):
                return Finding(message.cause, filled(message.fix, match), index)
    return None


def _is_last(lines: Sequence[str], index: int, ending: Ending) -> bool:
    """Whether the program ended after this line: nothing but noise follows. Codes 126 and 127 come
    from the shell alone, so that other output may follow, but no traceback."""
    after = [line for line in lines[index + 1 :] if line.strip()]
    if any("Traceback (most recent" in line for line in after):
        return False
    over = all(tracebacks.is_noise(tracebacks.unmarked(line)[1]) for line in after)
    return over or ending.code in (126, 127)


def _last_of(lines: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    for index in range(len(lines) - 1, max(-1, len(lines) - 1 - 400), -1):
        if pattern.match(tracebacks.unmarked(lines[index])[1]):
            return index
    return None


# ---------------------------------------------------------------- exceptions


def _uncaught(lines: Sequence[str], ending: Ending) -> Finding | None:
    raised = tracebacks.raised(lines)
    chain = tracebacks.last_chain(raised)
    # Python exits with 1 after an uncaught exception; any other code was chosen by the program.
    if not chain:
        return None
    late = ending.behind_pipe and tracebacks.ends_python(chain[-1], ending.code or 0)
    if not late and not tracebacks.is_the_end(lines, chain[-1], strict=ending.code != 1):
        return None
    if ending.code is None and chain[-1].was_caught:
        return None
    # Python ends by SIGINT then, not with code 1: a child was interrupted, and survived.
    if ending.code == 1 and chain[-1].name == "KeyboardInterrupt":
        return None
    if ending.code == _SHELL_INTERRUPTED and chain[-1].name == "KeyboardInterrupt":
        return Finding(Cause.TERMINATED, at=chain[-1].at, exception=chain[-1].name)
    if chain[-1].name in _CHILD_FAILED:
        return _from_child(lines, raised, chain, ending)
    return _from_chain(chain, ending)


def _from_chain(chain: Sequence[Raised], ending: Ending) -> Finding:
    """The first recognised exception from the root on; otherwise the last, written for users."""
    first, last = tracebacks.root(chain), chain[-1]
    killed = _CHILD.search(last.text) or _CHILD.search(first.text)
    if "DataLoader worker" in last.text + first.text and killed:
        source = last if _CHILD.search(last.text) else first
        name = _SIGNAL_WORDS.get(killed[1], "")
        if name != "SIGBUS" and name:
            return _from_child_signal(name, source, ending)
    for exception in chain[chain.index(first) :]:
        cause, fix = match_exception(exception)
        if fix or cause is not Cause.SCRIPT_EXCEPTION:
            return Finding(cause, fix, exception.at, _user_line(exception), exception.name)
    return Finding(Cause.SCRIPT_EXCEPTION, "", last.at, _user_line(last), last.name)


def _from_child(
    lines: Sequence[str], raised: Sequence[Raised], chain: Sequence[Raised], ending: Ending
) -> Finding | None:
    """What a launcher reports of its failed child leads to what the child itself printed."""
    last = chain[-1]
    start = chain[0].at
    torchrun = _torchrun_root(lines[last.at : last.at + 60])
    rank, name = "", ""
    if torchrun is not None:
        rank, name = torchrun[0], _NUMBERS.get(-torchrun[1], "")
    elif killed := _CHILD.search(last.text):
        name = killed[1] if killed[1].startswith("SIG") else _SIGNAL_WORDS.get(killed[1], "")
    elif last.name == "BrokenProcessPool":
        name = "SIGKILL" if ending.kills else ""
    if name:
        return _from_child_signal(name, last, ending, lines[:start])
    earlier = [exception for exception in raised if exception.at < start and not exception.aside]
    of_child = [exception for exception in earlier if rank and exception.stream == rank] or earlier
    if not of_child:
        code = torchrun[1] if torchrun is not None else _exit_code(last)
        message = _launcher_message(lines[:start], Ending(code))
        return message or Finding(Cause.UNKNOWN, at=last.at)
    return _from_chain(tracebacks.last_chain(of_child), ending)


def _torchrun_root(lines: Sequence[str]) -> tuple[str, int] | None:
    """The rank that torchrun names as the first to fail, and its exit code."""
    below = "\n".join(lines).partition("Root Cause")[2]
    rank = _ROOT_RANK.search(below)
    code = rank and _ROOT_CODE.search(below, rank.end())
    return (rank[1], int(code[1])) if rank and code else None


def _exit_code(last: Raised) -> int:
    match = re.search(r"(?:exit status|exit code) (\d+)", last.text)
    return int(match[1]) if match else 1


def _from_child_signal(
    name: str, source: Raised, ending: Ending, before: Sequence[str] = ()
) -> Finding:
    finding = _from_signal(before, name, ending)
    if finding.at is not None:
        return finding
    return finding._replace(at=source.at, exception=source.name)


def _user_line(raised: Raised) -> str:
    """The innermost frame in the user's code."""
    frames = (frame for frame in reversed(raised.frames) if tracebacks.is_user_code(frame.file))
    return next((f"{frame.file}:{frame.line}" for frame in frames if frame.line), "")
