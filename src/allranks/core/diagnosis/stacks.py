"""Stacks of a job's processes: parse, compare and describe them. Pure.

Stacks are ordered from the innermost frame to the outermost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """``text`` is the line of source code, if the node has the file."""

    file: str
    line: int
    function: str
    text: str = ""


class Thread(NamedTuple):
    name: str
    frames: tuple[Frame, ...]


class Process(NamedTuple):
    """A process of a rank at one moment.

    ``frames`` is the stack of its main thread, ``threads`` the others as far as known. ``parent``
    is the nearest ancestor with a stack, None for the rank's own process. ``silent`` is for how
    many seconds, at least, its main thread has not run Python; ``busy`` the share of a CPU it used
    recently; ``why`` the reason that it has no stack. ``collectives`` is what its recorder says,
    unread; see `core.diagnosis.collectives`.
    """

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
    collectives: Mapping[str, Any] | None = None


class Group(NamedTuple):
    """Processes whose main threads are at the same place."""

    processes: tuple[Process, ...]

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.processes[0].frames

    @property
    def ranks(self) -> list[int]:
        return sorted({process.rank for process in self.processes})


def load(data: Mapping[str, Any]) -> Process:
    """A process from the JSON that an agent sent. Raises TypeError or KeyError if invalid."""
    threads = (
        Thread(_text(thread["name"]), _frames(thread["frames"])) for thread in data["threads"]
    )
    made = Process(**{**data, "frames": _frames(data["frames"]), "threads": tuple(threads)})
    for number in (made.rank, made.node, made.pid, 0 if made.parent is None else made.parent):
        _whole(number)
    for amount in (made.silent, made.busy):
        if type(amount) not in (int, float) or not 0 <= amount < 1e18:
            raise TypeError(f"{amount!r} is not a number")
    name = _text(made.name)
    state = _text(made.state)
    why = _text(made.why)
    return made._replace(name=name, state=state, why=why)


def _frames(data: Iterable[Any]) -> tuple[Frame, ...]:
    made = (Frame(**fields) for fields in data)
    return tuple(
        Frame(_text(frame.file), _whole(frame.line), _text(frame.function), _text(frame.text))
        for frame in made
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value


def _text(value: Any) -> str:
    """The text with `?` for what is not UTF-8, as in file names."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value.encode(errors="replace").decode()


# ---------------------------------------------------------------- parsing

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_THREAD = re.compile(r'Thread "(.*)" \(most recent')
ANSWERED, WHOLE = "answered", "whole"


def read(text: str) -> tuple[tuple[Frame, ...], tuple[Thread, ...]]:
    """The main thread's stack and the other threads, from the output of the stack dumper in
    ``inside/sitecustomize``."""
    first: list[Frame] = []
    threads: list[tuple[str, list[Frame]]] = []
    into = first
    for line in text.splitlines():
        if line.startswith("Stack "):
            first.clear()  # a late answer to an earlier request comes before this one
            into = first
        elif match := _THREAD.match(line):
            into = []
            threads.append((match[1], into))
        elif match := _FRAME.match(line):
            into.append(Frame(_unescaped(match[1]), int(match[2]), _unescaped(match[3])))
    return tuple(first), tuple(Thread(name, tuple(frames)) for name, frames in threads)


def _unescaped(text: str) -> str:
    """Undo the escapes that faulthandler writes for characters outside ASCII."""
    escapes = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
    return escapes.sub(lambda m: chr(int(m[1] or m[2] or m[3], 16)), text)


def short(frame: Frame) -> Frame:
    """The frame with a path relative to the job's code: every node has its own copy."""
    return frame._replace(file=_WORK.sub("", frame.file))


# ---------------------------------------------------------------- what a process waits for

_LIBRARY = re.compile(r"^.*/(site|dist)-packages/|^.*/lib/python\d|^<frozen ")
# The working folder of a node and attempt.
_WORK = re.compile(r"^.*/(?:attempt-\d+|working/node-\d+)/work/")
# An innermost frame in these files waits for other ranks.
_COLLECTIVES = re.compile(
    r"torch/distributed/(distributed_c10d|_functional_collectives|rendezvous)\.py$"
    r"|horovod/(torch/mpi_ops|tensorflow/mpi_ops|common/basics|common/process_sets)\.py$"
    r"|tensorflow/python/ops/collective_ops\.py$"
    r"|jax/.*/(distributed|multihost_utils)\.py$"
)
_LAUNCHER = re.compile(r"torch/distributed/(run|launch)\.py$|accelerate/commands/launch\.py$")
# Wrappers around collectives, skipped in descriptions.
_WRAPPERS = ("wrapper", "inner", "_wrapper", "decorate_context", "wait", "_wait")
# Collectives in C, which have no frames: recognised by the line that calls them.
_CALLS = re.compile(
    r"\.(Barrier|barrier|[aA]ll_?reduce|[aA]ll_?gatherv?|[aA]ll_?toallv?|[bB]cast|broadcast|Reduce"
    r"|[rR]educe_?scatter|Scatterv?|Gatherv?|[wW]ait(?:all)?|[rR]ecv|[sS]endrecv|Send|Ssend)\("
)
# Calls that wait for a GPU, which in turn may wait for other ranks.
_GPU = re.compile(r"\.(synchronize|item|cpu|tolist|nonzero)\(")
_IMPORTING = "importing"
_BACKWARD = re.compile(r"torch/autograd/(graph|__init__)\.py$")


def waits(frames: Sequence[Frame]) -> str:
    """The collective operation in which a process waits for other ranks; empty if none."""
    if not frames:
        return ""
    if _COLLECTIVES.search(frames[0].file):
        within = []
        for frame in frames:
            if _LIBRARY.search(frame.file) is None and not _COLLECTIVES.search(frame.file):
                break
            within.append(frame.function)
        named = [name for name in within if name not in _WRAPPERS]
        return named[-1] if named else within[-1]
    call = _CALLS.search(frames[0].text)
    return call[1] if call else ""


def _imports(frames: Sequence[Frame]) -> bool:
    return any(frame.file.startswith("<frozen importlib") for frame in frames)


def waits_for_gpu(frames: Sequence[Frame]) -> str:
    """The call in which a process waits for a GPU; empty if none."""
    call = _GPU.search(frames[0].text) if frames else None
    return call[1] if call else ""


# Parts of a function that say nothing to people: their caller does.
_NAMELESS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>")


def named(frames: Iterable[Frame]) -> Frame | None:
    """The first frame of a function with a name; without one, the first."""
    several = [*frames]
    with_name = (frame for frame in several if frame.function not in _NAMELESS)
    return next(with_name, several[0] if several else None)


def _user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame in the user's code; without one, the innermost frame."""
    own = named(frame for frame in frames if not _LIBRARY.search(frame.file))
    return own or (frames[0] if frames else None)


# ---------------------------------------------------------------- comparison


def group(processes: Iterable[Process]) -> list[Group]:
    """Processes grouped by equal stacks, the largest group first. Lines within libraries are
    ignored, since a waiting loop moves between them; collectives are compared by name only."""
    by_place: dict[Any, list[Process]] = {}
    for process in processes:
        by_place.setdefault(place(process), []).append(process)
    groups = [Group(tuple(sorted(members, key=_order))) for members in by_place.values()]
    return sorted(groups, key=lambda group: (-len(group.processes), _order(group.processes[0])))


def _order(process: Process) -> tuple[int, int, int]:
    return process.rank, process.node, process.pid


def place(process: Process) -> object:
    """A key that is equal for processes with equal stacks."""
    if not process.frames:
        return process.parent is None, process.why
    own = tuple(frame[:3] for frame in process.frames if not _LIBRARY.search(frame.file))
    wait = waits(process.frames) or (_IMPORTING if _imports(process.frames) else "")
    within = wait or tuple(
        (_LIBRARY.sub("", frame.file), frame.function)
        for frame in process.frames
        if _LIBRARY.search(frame.file)
    )
    return process.parent is None, within, own


def odd(processes: Sequence[Process]) -> tuple[Process, Group] | None:
    """The rank process whose stack differs from most, and the group of the others. A process that
    waits for others differs less than one that does not. None if no two stacks are equal."""
    groups = group(own(processes))
    if len(groups) < 2 or len(groups[0].processes) < 2:
        return None
    rest = groups[1:]
    if not waits(groups[0].frames) and (waiting := [each for each in rest if waits(each.frames)]):
        # The smaller group waits for the larger one, which is stuck.
        return groups[0].processes[0], waiting[0]
    rest.sort(key=lambda group: (bool(waits(group.frames)), len(group.processes)))
    return rest[0].processes[0], groups[0]


def own(processes: Sequence[Process]) -> list[Process]:
    """The ranks' own processes; below a launcher, the processes it started."""
    launchers = {
        (p.node, p.pid) for p in processes if any(_LAUNCHER.search(f.file) for f in p.frames)
    }
    candidates = [p for p in processes if p.parent is None or (p.node, p.parent) in launchers]
    return [p for p in candidates if (p.node, p.pid) not in launchers] or candidates


def at(process: Process) -> str:
    """Where a process is, as `load_batch (data.py:88)`, or why that is unknown."""
    frame = _user_frame(process.frames)
    return (process.why or "no Python stack") if frame is None else _frame_text(frame)


def _frame_text(frame: Frame) -> str:
    return f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def doing(frames: Sequence[Frame]) -> str:
    """What a process does, as text that follows `is` or `are`."""
    inner = _user_frame(frames)
    if inner is None:
        return "without a Python stack"
    name = _frame_text(inner)
    if wait := waits(frames):
        return f"waiting in {wait}, called by {name}"
    if _imports(frames):
        return f"{_IMPORTING}, called by {name}"
    if frames and _BACKWARD.search(frames[0].file):
        return f"in backward, called by {name}"
    return f"in {name}"


def numbers(ranks: Sequence[int], most: int = 8) -> str:
    """Sorted ranks as ranges, `0-2,4-7`, at most ``most`` of them."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    ranges = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ",".join(ranges[:most]) + (",…" if len(ranges) > most else "")
