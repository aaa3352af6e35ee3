"""Metrics of jobs, the resource use of their nodes, and the current load.

A point is a JSON array: the tuples here are lists in the answer.
"""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from allranks.api.common import Number
from allranks.api.jobs import JobAnswer, JobSummary, StateOfJob, WorkingFolderAnswer

# Step, seconds since the epoch, value.
MetricPoint = tuple[int, float, Number]
# Seconds since the epoch, value.
ResourcePoint = tuple[float, Number]


class Series(TypedDict):
    """``length`` is the number of its points."""

    id: int
    name: str
    attempt: int
    node: int
    rank: int | None
    gpu: int | None
    length: int


class MetricSeries(Series):
    """``key`` is unique in the job, unlike the name."""

    key: str


class MetricPoints(MetricSeries):
    points: list[MetricPoint]


class MetricsAnswer(TypedDict):
    series: list[MetricPoints]


class MetricSummary(MetricSeries):
    """``shape`` are some of the values, for a sparkline."""

    last: MetricPoint
    min: float | None
    max: float | None
    shape: list[Number]


class MetricsSummary(TypedDict):
    series: list[MetricSummary]


class MetricsNews(TypedDict):
    """New points; ``ended``: the job has ended."""

    series: list[MetricPoints]
    ended: bool


class ResourcePoints(Series):
    points: list[ResourcePoint]


class ResourcesAnswer(TypedDict):
    series: list[ResourcePoints]


class Load(TypedDict, total=False):
    """Percent, bytes and bytes per second; what could not be measured is absent."""

    cpu: Number
    memory: Number
    memory_total: Number
    disk_read: Number
    disk_write: Number
    net_in: Number
    net_out: Number


class GpuLoad(TypedDict):
    """Percent, bytes, watts and degrees Celsius."""

    gpu: int
    gpu_load: NotRequired[Number]
    gpu_memory: NotRequired[Number]
    gpu_memory_total: NotRequired[Number]
    gpu_power: NotRequired[Number]
    gpu_power_limit: NotRequired[Number]
    gpu_temperature: NotRequired[Number]


class RankLoad(TypedDict):
    rank: int
    cpu: NotRequired[Number]
    memory: NotRequired[Number]


class NodeLoad(Load):
    """The job's load on a node; ``node_load`` is that of the whole node. ``now``: it is of the last
    minute."""

    node: int
    at: str
    node_load: Load
    gpus: list[GpuLoad]
    ranks: list[RankLoad]
    now: bool


class Measured(TypedDict):
    """The last value of each metric by its key, and the last load of each node."""

    metrics: dict[str, Number]
    load: list[NodeLoad]


class LiveJob(JobSummary, Measured):
    """A live job with what it reports."""


class ShownJob(JobAnswer):
    """A job with all that is known of it. The keys after ``page`` are of command jobs."""

    page: str | None
    metrics: NotRequired[dict[str, Number]]
    load: NotRequired[list[NodeLoad]]
    state: NotRequired[StateOfJob]
    working_folder: NotRequired[WorkingFolderAnswer | None]
