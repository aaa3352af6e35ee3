"""What a rank's sampler has recorded, and the phase of a training step that each sample is in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from allranks.core.diagnosis import collectives
from allranks.core.diagnosis.collectives import Recorded
from allranks.core.diagnosis.stacks import Frame, named, short, waits

# Why a rank has no profile, if that is so.
NO_PYTHON = "it has no Python that can be asked"
# Frames, samples and threads of one process at most.
_MOST = 1_000_000


class Phase(StrEnum):
    """What a training step does. COLLECTIVE: it waits for other ranks; OTHER: the script's own."""

    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    COLLECTIVE = "collective"
    IMPORT = "import"
    OTHER = "other"


class Thread(NamedTuple):
    """``at`` are the times of its samples, in seconds since the begin; ``cpu`` the processor time
    that it used up to each, ``waited`` the time that it waited for a processor, of the first thread
    alone; ``stacks`` their stacks, by number."""

    name: str
    is_main: bool
    at: tuple[float, ...]
    cpu: tuple[float, ...]
    waited: tuple[float, ...]
    stacks: tuple[int, ...]


class Native(NamedTuple):
    """A thread of the kernel's, with Python or without: the seconds of the window that it ran, and
    that it waited for a processor."""

    name: str
    ran: float
    waited: float


class Samples(NamedTuple):
    """The samples of one process. ``stacks`` are tuples of frames from the outermost. ``waited``:
    seconds that its first thread waited for a processor; ``lock``: that the sampler waited for the
    interpreter's lock, in the mean of its samples. ``native`` are all threads but the first."""

    rank: int
    node: int
    begin: float
    seconds: float
    stacks: tuple[tuple[Frame, ...], ...]
    threads: tuple[Thread, ...]
    waited: float
    lock: float
    recorded: Recorded | None
    native: tuple[Native, ...] = ()

    @property
    def main(self) -> Thread | None:
        return next((thread for thread in self.threads if thread.is_main), None)


def load(rank: int, node: int, data: Mapping[str, Any]) -> Samples:
    """Samples from a rank's answer. Raises TypeError, ValueError, KeyError, IndexError if it is
    malformed."""
    frames = [
        short(Frame(str(file), int(line), str(name), *map(str, text[:1])))
        for file, line, name, *text in data["frames"]
    ]
    stacks = tuple(tuple(frames[number] for number in stack) for stack in data["stacks"])
    threads = tuple(_thread(thread, len(stacks)) for thread in data["threads"])
    if sum(len(thread.at) for thread in threads) > _MOST:
        raise ValueError("more samples than a profile can have")
    answer = data.get("collectives")
    recorded = None
    if answer and answer.get("rank") is not None:
        recorded = collectives.load(answer)
        rank = recorded.rank
    begin, seconds, waited = (float(data[key]) for key in ("begin", "seconds", "waited"))
    lock = float(data["lock"])
    native = tuple(
        Native(str(name)[:100], float(ran), float(waited)) for name, ran, waited in data["native"]
    )
    return Samples(rank, node, begin, seconds, stacks, threads, waited, lock, recorded, native)


def _thread(data: Mapping[str, Any], stacks: int) -> Thread:
    at, cpu = tuple(map(float, data["at"])), tuple(map(float, data["cpu"]))
    waited = tuple(map(float, data["waited"])) or (0.0,) * len(at)
    numbers = tuple(map(int, data["stacks"]))
    if (
        len(waited) != len(at)
        or not len(at) == len(cpu) == len(numbers)
        or any(not 0 <= n < stacks for n in numbers)
    ):
        raise ValueError("a thread's samples do not fit")
    return Thread(str(data["name"])[:100], data["main"] is True, at, cpu, waited, numbers)


# ---------------------------------------------------------------- phases

# What frames show: the file of a library, and the function; or a function of the script.
_FRAMES: tuple[tuple[Phase, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (phase, re.compile(file), re.compile(function))
    for phase, file, function in (
        (
            Phase.CHECKPOINT,
            r"torch/serialization\.py$|torch/distributed/checkpoint/|safetensors|orbax|"
            r"checkpoint\w*\.py$",
            r"^_?(save|async_save|save_file|write)",
        ),
        (
            Phase.CHECKPOINT,
            r"",
            r"(save|write|store|dump)_\w*(checkpoint|state|model|ckpt|weights)",
        ),
        (Phase.CHECKPOINT, r"", r"^(checkpoint|save_pretrained)$"),
        (Phase.INPUT, r"torch/utils/data/|torchdata/|datasets/(iterable|arrow)_dataset", r""),
        (Phase.INPUT, r"", r"^(__getitem__|collate\w*)$"),
        (
            Phase.INPUT,
            r"",
            r"(load|read|fetch|get|next|make|prepare|decode|augment|preprocess|tokenize)"
            r"_?(\w+_)?(batch|batches|data|sample|samples|item|items|input|inputs|image|images|text)",
        ),
        (Phase.OPTIMIZER, r"torch/optim/|torch/nn/utils/clip_grad", r""),
        (Phase.OPTIMIZER, r"", r"^optimizer_step$|^update_(weights|parameters)$"),
        (Phase.BACKWARD, r"torch/autograd/(__init__|graph)\.py$", r"backward|^grad$|run_backward"),
        (Phase.FORWARD, r"torch/nn/modules/module\.py$", r"_call_impl"),
        (Phase.FORWARD, r"", r"^forward$"),
    )
)
_LIBRARY = re.compile(r"(site|dist)-packages/|/lib/python\d|^<")


def phase(stack: Sequence[Frame]) -> Phase:
    """The phase of a stack, from its outermost frame. A collective of a checkpoint or of the input
    counts as that."""
    if any(frame.file.startswith("<frozen importlib") for frame in stack):
        return Phase.IMPORT
    shown = {kind for frame in stack for kind in _of_frame(frame)}
    for first in (Phase.CHECKPOINT, Phase.INPUT):
        if first in shown:
            return first
    if waits(stack[::-1]):
        return Phase.COLLECTIVE
    for kind in (Phase.OPTIMIZER, Phase.BACKWARD, Phase.FORWARD):
        if kind in shown:
            return kind
    return Phase.OTHER


def _of_frame(frame: Frame) -> set[Phase]:
    own = is_own(frame)
    return {
        kind
        for kind, file, function in _FRAMES
        if (own or file.pattern) and file.search(frame.file) and function.search(frame.function)
    }


def is_own(frame: Frame) -> bool:
    """Whether it is the script's, not a library's."""
    return _LIBRARY.search(frame.file) is None


def place(stack: Sequence[Frame], of_line: bool = False) -> str:
    """The innermost frame with a name in the script, as `load (data.py:12)`; ``of_line``: with its
    source line instead of the function, if that is there."""
    frame = named(frame for frame in reversed(stack) if is_own(frame))
    if frame is None:
        return ""
    name = f"`{frame.text[:60]}`" if of_line and frame.text else frame.function
    return f"{name} ({frame.file.rpartition('/')[2]}:{frame.line})"
