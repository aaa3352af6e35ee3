"""What one rank's end and the end of its log say about why it failed. Pure.

The end counts first: a signal is no exception's doing, and an exit code of a shell's own says what
the shell could not do. Then the exception that nothing caught. What was printed and survived says
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from allranks.plan.diagnosis import tracebacks
from allranks.plan.diagnosis.causes import TABLE, Cause
from allranks.plan.diagnosis.error_patterns import Sign, of_exception, sign
from allranks.plan.diagnosis.launcher_messages import LAST
from allranks.plan.diagnosis.tracebacks import Raised

# How many lines before the end hold what a shell, a linker or a runtime has said last.
_NEAR = 40


class Ending(NamedTuple):
    """How a process ended: ``code`` 128 + N after signal N. ``kills`` counts the processes that the
    kernel killed for want of memory where this one ran, about the moment of its end."""

    code: int | None
    signal: str | None = None
    kills: int = 0


class Finding(NamedTuple):
    """A cause, and the line that says so (its index, or None where no line does). ``where`` is the
    user's own line of code, ``what`` the exception's name."""

    cause: Cause
    fix: str
    at: int | None = None
    where: str = ""
    what: str = ""

    @property
    def is_echo(self) -> bool:
        """Whether it may be what somebody else's failure did here."""
        return TABLE[self.cause].echo


# What a runtime says as it aborts, and the exception in it where there is one.
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

# What stands for a child's failure: torchrun, multiprocessing, subprocess, loaders of data.
_ROOT = "Root Cause"
_ROOT_RANK, _ROOT_CODE = re.compile(r"rank\s*: (\d+)"), re.compile(r"exitcode\s*: (-?\d+)")
_CHILD = re.compile(
    r"(?:process \d+ terminated with signal|died with <Signals\.|is killed by signal:|"
    r"terminated with exit code:? -|exitcode:? -) ?(\w+)"
)
_WORDS = {
    "Killed": "SIGKILL",
    "Segmentation": "SIGSEGV",
    "Bus": "SIGBUS",
    "Aborted": "SIGABRT",
    "Terminated": "SIGTERM",
    "Illegal": "SIGILL",
    "Floating": "SIGFPE",
}
_ENVELOPES = (
    "ChildFailedError",
    "ProcessExitedException",
    "CalledProcessError",
    "BrokenProcessPool",
)


def finding(lines: Sequence[str], ending: Ending) -> Finding | None:
    """The cause that a rank's own end and lines give; None when it ended well or they say
    nothing."""
    if ending.code == 0:
        return None
    if ending.signal is not None:
        return _of_signal(lines, ending.signal, ending)
    return _said_last(lines, ending) or _uncaught(lines, ending)


def standing(lines: Sequence[str]) -> Finding | None:
    """What had already gone wrong in a rank that was then stopped for another's failure."""
    found = _uncaught(lines, Ending(None))
    stopped = found is not None and found.what in ("KeyboardInterrupt", "SystemExit")
    return None if stopped else found


# ---------------------------------------------------------------- signals


def _of_signal(lines: Sequence[str], name: str, ending: Ending) -> Finding:
    cause = _SIGNALS.get(name, Cause.UNKNOWN)
    oom = _last_of(lines, _OOM_OF_SLURM)
    if cause is Cause.KILLED and (ending.kills or oom is not None):
        return _plain(Cause.OUT_OF_MEMORY, oom)
    if cause is Cause.ABORTED:
        return _aborted(lines)
    fatal = _last_of(lines, re.compile(r"Fatal Python error: |Current thread 0x"))
    if cause in (Cause.SEGMENTATION_FAULT, Cause.BUS_ERROR, Cause.ILLEGAL_INSTRUCTION):
        return _plain(cause, fatal)._replace(where=_native_frame(lines))
    return _plain(cause, None)


def _native_frame(lines: Sequence[str]) -> str:
    """The user's line in what faulthandler has printed: the first that is no package's."""
    for line in lines[-200:]:
        found = re.match(r'\s+File "([^"]+)", line (\d+)(?: in |$)', tracebacks.unmarked(line)[1])
        if found and tracebacks.is_the_users(found[1]):
            return f"{found[1]}:{found[2]}"
    return ""


def _aborted(lines: Sequence[str]) -> Finding:
    """What aborts takes the exception along that it aborts for; a cause beats what follows."""
    raised = _uncaught(lines, Ending(1))
    if raised is not None and raised.cause not in (Cause.SCRIPT_EXCEPTION, Cause.UNKNOWN):
        return raised
    for cause, pattern in _ABORTS:
        at = _last_of(lines, pattern)
        if at is not None:
            return _plain(cause, at)
    return _plain(Cause.ABORTED, _last_of(lines, _DEAD))


# ---------------------------------------------------------------- last lines


def _said_last(lines: Sequence[str], ending: Ending) -> Finding | None:
    for index in range(len(lines) - 1, max(-1, len(lines) - 1 - _NEAR), -1):
        line = tracebacks.unmarked(lines[index])[1]
        for last in LAST:
            if last.codes and ending.code not in last.codes:
                continue
            found = last.line.match(line)
            if found is not None and _is_last(lines, index, ending):
                return _found(sign(last.cause, last.fix, found), index)
    return None


def _is_last(lines: Sequence[str], index: int, ending: Ending) -> bool:
    """Whether the program was over then: a traceback later is one of its own, and with another line
    it went on. What a shell could not do has a code that nobody else chooses."""
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
    found = tracebacks.raised(lines)
    chain = tracebacks.last_chain(found)
    # Only Python's own end has that code; with another one the program chose its end.
    if not chain or not tracebacks.is_the_end(lines, chain[-1], strict=ending.code != 1):
        return None
    if ending.code is None and chain[-1].was_caught:
        return None
    # Python itself ends by the signal then: it is a child's, and was survived.
    if ending.code == 1 and chain[-1].name == "KeyboardInterrupt":
        return None
    if chain[-1].name in _ENVELOPES:
        return _of_child(lines, found, chain, ending)
    return _of_chain(lines, chain, ending)


def _of_chain(lines: Sequence[str], chain: Sequence[Raised], ending: Ending) -> Finding:
    """The root says it where it is known; else the last, which was made for people to read."""
    first, last = tracebacks.root(chain), chain[-1]
    killed = _CHILD.search(last.text) or _CHILD.search(first.text)
    if "DataLoader worker" in last.text + first.text and killed:
        said = last if _CHILD.search(last.text) else first
        name = _WORDS.get(killed[1], "")
        if name != "SIGBUS" and name:
            return _by_signal(name, said, ending)
    steps = chain[chain.index(first) :]
    for each in steps:
        known = of_exception(each)
        if known.cause is not Cause.SCRIPT_EXCEPTION:
            return _named(known, each)
    return _named(of_exception(last), last)


def _of_child(
    lines: Sequence[str], found: Sequence[Raised], chain: Sequence[Raised], ending: Ending
) -> Finding | None:
    """What a launcher says of the process that failed below it leads to what that one said."""
    last = chain[-1]
    start = chain[0].at
    torchrun = _root(lines[last.at : last.at + 60])
    rank, name = "", ""
    if torchrun is not None:
        rank, name = torchrun[0], _NUMBERS.get(-torchrun[1], "")
    elif killed := _CHILD.search(last.text):
        name = killed[1] if killed[1].startswith("SIG") else _WORDS.get(killed[1], "")
    elif last.name == "BrokenProcessPool":
        name = "SIGKILL" if ending.kills else ""
    if name:
        return _by_signal(name, last, ending, lines[:start])
    own = [each for each in found if each.at < start and not each.aside]
    theirs = [each for each in own if rank and each.stream == rank] or own
    if not theirs:
        before = _said_last(lines[:start], Ending(_code(last, torchrun)))
        return before or Finding(Cause.UNKNOWN, TABLE[Cause.UNKNOWN].fix, last.at)
    below = tracebacks.last_chain(theirs)
    return _of_chain(lines, below, ending)


def _root(lines: Sequence[str]) -> tuple[str, int] | None:
    """The rank that torchrun names as the first to fail, and its exit code."""
    below = "\n".join(lines).partition(_ROOT)[2]
    rank = _ROOT_RANK.search(below)
    code = rank and _ROOT_CODE.search(below, rank.end())
    return (rank[1], int(code[1])) if rank and code else None


def _code(last: Raised, torchrun: tuple[str, int] | None) -> int:
    if torchrun is not None:
        return torchrun[1]
    found = re.search(r"(?:exit status|exit code) (\d+)", last.text)
    return int(found[1]) if found else 1


def _by_signal(name: str, said: Raised, ending: Ending, before: Sequence[str] = ()) -> Finding:
    found = _of_signal(before, name, ending)
    return found if found.at is not None else found._replace(at=said.at, what=said.name)


def _named(known: Sign, raised: Raised) -> Finding:
    return Finding(known.cause, known.fix, raised.at, _users_line(raised), raised.name)


def _users_line(raised: Raised) -> str:
    """The innermost frame in the user's own code."""
    for frame in reversed(raised.frames):
        if tracebacks.is_the_users(frame.file):
            return f"{frame.file}:{frame.line}"
    return ""


def _found(known: Sign, at: int | None) -> Finding:
    return Finding(known.cause, known.fix, at)


def _plain(cause: Cause, at: int | None) -> Finding:
    return Finding(cause, TABLE[cause].fix, at)
