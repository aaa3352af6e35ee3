"""The types of insights about a job."""

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
    NETWORK = "network"


class Bottleneck(StrEnum):
    """What limited the job's speed."""

    INPUT = "input"
    COMPUTE = "compute"
    PROCESSORS = "processors"
    MEMORY = "memory"
    IMBALANCE = "imbalance"
    UNKNOWN = "unknown"


class Insight(NamedTuple):
    """An observation about a job. ``evidence`` holds the measurements behind the sentence; ``hint``
    is the change to make and ``gain`` its expected effect, if known. ``verdict`` is the bottleneck
    of the whole job that follows from it, if any."""

    kind: Kind
    sentence: str
    evidence: Shown
    hint: str = ""
    gain: str | None = None
    verdict: Bottleneck | None = None
