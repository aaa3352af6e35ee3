"""What can be said of a job that ran: the words, and how each is backed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

Shown = Mapping[str, float | int | str]


class Kind(StrEnum):
    """The kinds of insights."""

    INPUT = "input-bound"
    COMPUTE = "compute-bound"
    PROCESSORS = "processor-bound"
    MEMORY = "memory pressure"
    IMBALANCE = "imbalance"
    IDLE_GPUS = "idle GPUs"
    QUIET_RANK = "quiet rank"
    UNSHARDED = "unsharded data"


class Bottleneck(StrEnum):
    """What kept the job from being faster."""

    INPUT = "input"
    COMPUTE = "compute"
    PROCESSORS = "processors"
    MEMORY = "memory"
    IMBALANCE = "imbalance"
    UNKNOWN = "unknown"


class Insight(NamedTuple):
    """What was found, in a sentence; ``evidence`` the numbers it rests on; ``hint`` the change to
    make and ``gain`` what to expect of it, where that can be said. ``verdict`` is what it says of
    the whole job."""

    kind: Kind
    sentence: str
    evidence: Shown
    hint: str = ""
    gain: str | None = None
    verdict: Bottleneck | None = None
