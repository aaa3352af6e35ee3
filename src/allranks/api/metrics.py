"""Metrics of jobs, the resource use of their nodes, and the current load.

A point is a JSON array: the tuples here are lists in the answer.
"""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from allranks.api.common import Number
from allranks.api.jobs import (
    JobAnswer,
    JobSummary,
    ServiceAnswer,
    SlowRank,
    StateOfJob,
    WorkingFolderAnswer,
)

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


class ShownMetricPoints(MetricPoints):
    """``thinned``: there are more points than these; the extremes are among them."""

    thinned: bool


class MetricsAnswer(TypedDict):
    series: list[ShownMetricPoints]


class RankStanding(TypedDict):
    """How a rank, or a GPU, stands to the median of all, which ``difference`` is from. ``late``:
    the share of places at which it takes a tenth longer; ``longest`` the most of these in a row,
    from place ``begin``; ``worst`` the greatest difference, at place ``at``. ``cells``: its values
    by place, if it is an outlier or they were asked for."""

    node: int
    rank: int | None
    gpu: int | None
    difference: float
    outlier: bool
    late: float
    longest: float
    begin: float
    worst: float
    at: float
    cells: list[float | None]


class HeatMapAnswer(TypedDict):
    """``shades``: a byte for each track and column, track after track, as base64: 0 without a
    value, 1 at ``low`` and below, 255 at ``high`` and above."""

    low: float
    high: float
    shades: str


class RanksOfAttempt(TypedDict):
    """A metric or resource of all ranks in an attempt. Columns by place, which is a step, or for
    resources seconds since the epoch: ``least_track`` and ``greatest_track`` are numbers in
    ``tracks``. ``odd``: place, number of the track and value of some that are no number.
    ``columns``: the places of the tracks' cells. ``heat``: if it was asked for, and then there is
    no mean and range."""

    attempt: int
    places: list[float]
    times: list[float]
    mean: list[float | None]
    least: list[float | None]
    greatest: list[float | None]
    least_track: list[int | None]
    greatest_track: list[int | None]
    odd: list[tuple[float, int, Number]]
    columns: list[float]
    tracks: list[RankStanding]
    heat: HeatMapAnswer | None


class RanksAnswer(TypedDict):
    attempts: list[RanksOfAttempt]


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
    """``thinned`` as of metrics."""

    thinned: bool
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
    minute. Several nodes may be on one ``host``."""

    node: int
    host: str | None
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
    """A live job with what it reports, and why it does not go on."""

    status_reason: str | None


class RankRow(TypedDict):
    """How a rank goes; what is unknown is None. ``step`` is the last that it logged, ``step_time``
    the seconds of one; ``waiting``: the share of the time that it waits for others; ``cpu`` in
    percent of one; ``gpu`` in percent, of its own or of its node's; ``disk`` and ``network``: bytes
    a second, the job's and all of its node."""

    rank: int
    node: int
    host: str | None
    step: int | None
    step_time: float | None
    waiting: float | None
    cpu: Number | None
    memory: Number | None
    gpu: Number | None
    disk: float | None
    network: float | None
    slow: bool


class RankTable(TypedDict):
    """``slow_ranks``: who holds the others, or did."""

    name: str
    status: str
    ranks: list[RankRow]
    slow_ranks: list[SlowRank]


class ShownJob(JobAnswer):
    """A job with all that is known of it. The keys after ``page`` are of command jobs; ``peaks``,
    only with `peaks=true`: like ``load``, but the greatest values in the last attempt of a job
    that has ended; ``has_outputs``: whether it has files of its own or named outputs."""

    page: str | None
    metrics: NotRequired[dict[str, Number]]
    load: NotRequired[list[NodeLoad]]
    peaks: NotRequired[list[NodeLoad]]
    state: NotRequired[StateOfJob]
    working_folder: NotRequired[WorkingFolderAnswer | None]
    services: NotRequired[list[ServiceAnswer]]
    slow_ranks: NotRequired[list[SlowRank]]
    has_outputs: NotRequired[bool]
