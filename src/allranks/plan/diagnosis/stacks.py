"""Stacks of a job's processes: read, told apart from one another, put into words. Pure.

A frame is where a function is; stacks go from the innermost frame to the outermost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """``text`` is the line of source there, where the node has the file."""

    file: str
    line: int
    function: str
    text: str = ""


class Thread(NamedTuple):
    name: str
    frames: tuple[Frame, ...]


class Process(NamedTuple):
    """A process of a rank when it was looked at. ``frames`` is its first thread's stack,
    ``threads`` are the others as far as they are known; ``parent`` the nearest process above it
    that has a stack, None of the rank's own. ``silent``: for how many seconds, at least, its
    first thread has not run Python. ``busy``: the share of a CPU it used of late. ``why`` there is
    no stack, in words."""

    rank: int
    node: int
    pid: int
    name: str
    state: str = ""
    frames: tuple[Frame, ...] = ()
    threads: tuple[Thread, ...] = ()
    parent: int | None = None
    silent: float = 0.0
    busy: float = 0.0
    why: str = ""


class Group(NamedTuple):
    """Processes whose first threads are at the same place."""

    processes: tuple[Process, ...]

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.processes[0].frames

    @property
    def ranks(self) -> list[int]:
        return sorted({each.rank for each in self.processes})


def load(data: Mapping[str, Any]) -> Process:
    """The process that ``pack`` made into JSON. Raises TypeError or KeyError for what is none."""
    threads = (Thread(_text(each["name"]), _frames(each["frames"])) for each in data["threads"])
    made = Process(**{**data, "frames": _frames(data["frames"]), "threads": tuple(threads)})
    for number in (made.rank, made.node, made.pid, 0 if made.parent is None else made.parent):
        _whole(number)
    for amount in (made.silent, made.busy):
        if type(amount) not in (int, float) or not 0 <= amount < 1e18:
            raise TypeError(f"{amount!r} is no number")
    name, state, why = _text(made.name), _text(made.state), _text(made.why)
    return made._replace(name=name, state=state, why=why)


def _frames(told: Iterable[Any]) -> tuple[Frame, ...]:
    made = (Frame(**each) for each in told)
    return tuple(
        Frame(_text(each.file), _whole(each.line), _text(each.function), _text(each.text))
        for each in made
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _text(value: Any) -> str:
    """What is not UTF-8, as names of files may not be, as `?`."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value.encode(errors="replace").decode()


# ---------------------------------------------------------------- what a process wrote

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_THREAD = re.compile(r'Thread "(.*)" \(most recent')
ANSWERED, WHOLE = "answered", "whole"


def read(text: str) -> tuple[tuple[Frame, ...], tuple[Thread, ...]]:
    """The first thread's stack and the other threads, of what ``inside/sitecustomize`` wrote."""
    first: list[Frame] = []
    threads: list[tuple[str, list[Frame]]] = []
    into = first
    for line in text.splitlines():
        if line.startswith("Stack "):
            first.clear()  # a look whose answer came late stands before this one
            into = first
        elif found := _THREAD.match(line):
            into = []
            threads.append((found[1], into))
        elif found := _FRAME.match(line):
            into.append(Frame(_plain(found[1]), int(found[2]), _plain(found[3])))
    return tuple(first), tuple(Thread(name, tuple(frames)) for name, frames in threads)


def _plain(text: str) -> str:
    """As it was: faulthandler writes what is not ASCII as Python would."""
    unescape = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
    return unescape.sub(lambda m: chr(int(m[1] or m[2] or m[3], 16)), text)


def short(frame: Frame) -> Frame:
    """The same, of the job's code: every node has its own copy."""
    return frame._replace(file=_WORK.sub("", frame.file))


# ---------------------------------------------------------------- what it waits for

_LIBRARY = re.compile(r"^.*/(site|dist)-packages/|^.*/lib/python\d|^<frozen ")
# The working folder of a node and attempt.
_WORK = re.compile(r"^.*/attempt-\d+/work/")
# Functions of these files that are innermost wait for other ranks, whatever they are called.
_MEETING = re.compile(
    r"torch/distributed/(distributed_c10d|_functional_collectives|rendezvous)\.py$"
    r"|horovod/(torch/mpi_ops|tensorflow/mpi_ops|common/basics|common/process_sets)\.py$"
    r"|tensorflow/python/ops/collective_ops\.py$"
    r"|jax/.*/(distributed|multihost_utils)\.py$"
)
_LAUNCHER = re.compile(r"torch/distributed/(run|launch)\.py$|accelerate/commands/launch\.py$")
# What stands around them and says nothing.
_WRAPPERS = ("wrapper", "inner", "_wrapper", "decorate_context", "wait", "_wait")
# The same of C code, which has no frames: by the line that calls it.
_CALLS = re.compile(
    r"\.(Barrier|barrier|[aA]ll_?reduce|[aA]ll_?gatherv?|[aA]ll_?toallv?|[bB]cast|broadcast|Reduce"
    r"|[rR]educe_?scatter|Scatterv?|Gatherv?|[wW]ait(?:all)?|[rR]ecv|[sS]endrecv|Send|Ssend)\("
)
# What waits for a GPU, which may wait for other ranks.
_GPU = re.compile(r"\.(synchronize|item|cpu|tolist|nonzero)\(")
_IMPORTING = "importing"
_BACKWARD = re.compile(r"torch/autograd/(graph|__init__)\.py$")


def waits(frames: Sequence[Frame]) -> str:
    """What it waits in for other ranks, by name; empty when it is not seen to."""
    if not frames:
        return ""
    if _MEETING.search(frames[0].file):
        within = []
        for each in frames:
            if _LIBRARY.search(each.file) is None and not _MEETING.search(each.file):
                break
            within.append(each.function)
        named = [name for name in within if name not in _WRAPPERS]
        return named[-1] if named else within[-1]
    if found := _CALLS.search(frames[0].text):
        return found[1]
    return ""


def _imports(frames: Sequence[Frame]) -> bool:
    return any(each.file.startswith("<frozen importlib") for each in frames)


def waits_for_gpu(frames: Sequence[Frame]) -> str:
    """The call that has it wait for a GPU; empty when none is seen."""
    found = _GPU.search(frames[0].text) if frames else None
    return found[1] if found else ""


def users(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, else the innermost of all."""
    own = [each for each in frames if not _LIBRARY.search(each.file)]
    return own[0] if own else frames[0] if frames else None


# ---------------------------------------------------------------- who is where


def group(processes: Iterable[Process]) -> list[Group]:
    """Those with the same stack together, the largest group first. Where in a library a process is
    just now, in a loop that waits, tells nobody apart: of libraries' frames only functions count,
    and of what waits for other ranks only for what."""
    found: dict[Any, list[Process]] = {}
    for each in processes:
        found.setdefault(place(each), []).append(each)
    several = [Group(tuple(sorted(each, key=_order))) for each in found.values()]
    return sorted(several, key=lambda each: (-len(each.processes), _order(each.processes[0])))


def _order(process: Process) -> tuple[int, int, int]:
    return process.rank, process.node, process.pid


def place(process: Process) -> object:
    """Equal for two that are at the same place."""
    if not process.frames:
        return process.parent is None, process.why
    own = tuple(each[:3] for each in process.frames if not _LIBRARY.search(each.file))
    for_whom = waits(process.frames) or (_IMPORTING if _imports(process.frames) else "")
    within = for_whom or tuple(
        (_LIBRARY.sub("", each.file), each.function)
        for each in process.frames
        if _LIBRARY.search(each.file)
    )
    return process.parent is None, within, own


def odd(processes: Sequence[Process]) -> tuple[Process, Group] | None:
    """The one of the ranks' own processes that is elsewhere than most, and where most are. Who
    waits for others is less odd than who does not; None where no two are together."""
    groups = group(own(processes))
    if len(groups) < 2 or len(groups[0].processes) < 2:
        return None
    rest = groups[1:]
    if not waits(groups[0].frames) and (meet := [each for each in rest if waits(each.frames)]):
        # Two stuck and one that waits for them: the larger group is the odd one.
        return groups[0].processes[0], meet[0]
    rest.sort(key=lambda each: (bool(waits(each.frames)), len(each.processes)))
    return rest[0].processes[0], groups[0]


def own(processes: Sequence[Process]) -> list[Process]:
    """The ranks' own: the first of each that has a stack; below a launcher what it has started."""
    launchers = {
        (p.node, p.pid) for p in processes if any(_LAUNCHER.search(f.file) for f in p.frames)
    }
    found = [p for p in processes if p.parent is None or (p.node, p.parent) in launchers]
    trained = [each for each in found if (each.node, each.pid) not in launchers]
    return trained or found


def at(process: Process) -> str:
    """Where it is: `load_batch (data.py:88)`, or why nobody knows."""
    found = users(process.frames)
    if found is None:
        return process.why or "no Python stack"
    return f"{found.function} ({found.file.rpartition('/')[2]}:{found.line})"


def doing(frames: Sequence[Frame]) -> str:
    """What a process does, in words that follow `is` or `are`."""
    inner = users(frames)
    if inner is None:
        return "without a Python stack"
    name = f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})"
    if for_whom := waits(frames):
        return f"waiting in {for_whom}, called by {name}"
    if _imports(frames):
        return f"{_IMPORTING}, called by {name}"
    if frames and _BACKWARD.search(frames[0].file):
        return f"in backward, called by {name}"
    return f"in {name}"


def numbers(ranks: Sequence[int], most: int = 8) -> str:
    """`0-2,4-7`: which ranks, as short as they can be told."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    told = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ",".join(told[:most]) + (",…" if len(told) > most else "")
