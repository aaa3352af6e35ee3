"""Computes: what ``/computes`` answers."""

from __future__ import annotations

from typing_extensions import TypedDict

from allranks.api.common import Document


class ComputeSpec(TypedDict):
    """A compute as it is stored, with default values; see `spec.compute`."""

    name: str
    type: str
    description: str | None
    tags: dict[str, str]
    properties: dict[str, str]
    size: str | None
    tier: str | None
    min_instances: int
    max_instances: int | None
    gpus_per_node: int | None
    idle_time_before_scale_down: float | None
    server_address: str | None
    options: Document


class ComputeAnswer(ComputeSpec):
    """A compute. ``door`` is the URL by which its nodes call the server, ``door_trouble`` why that
    does not listen."""

    is_default: bool
    door: str | None
    door_trouble: str | None


class ChangedCompute(ComputeAnswer):
    """``without_effect`` are the keys that were given and change nothing here."""

    without_effect: list[str]
    notes: list[str]


class RunsOnHost(TypedDict):
    """A job's nodes on one host, and what they take of it: ``cpus`` as requested, but one for each
    rank at least."""

    job: str
    nodes: list[int]
    ranks: int
    cpus: float
    gpus: int


class HostAnswer(TypedDict):
    """A machine of a cluster; see `engines.base.Host`. ``runs``: this server's jobs on it."""

    name: str
    address: str
    state: str
    ready: bool
    cpus: float
    free_cpus: float | None
    gpus: int
    free_gpus: int | None
    memory: int
    why: str
    runs: list[RunsOnHost]


class JobOfCompute(TypedDict):
    """A live job, and how much it asks for in all; ``reason``: why it does not make progress."""

    name: str
    status: str
    nodes: int
    ranks: int
    gpus: int
    created_at: str
    created_by: str
    reason: str | None


class ShownCompute(ComputeAnswer):
    """With its hosts, or the ``trouble`` with listing them, and its live jobs."""

    hosts: list[HostAnswer]
    trouble: str | None
    jobs: list[JobOfCompute]


class ComputesAnswer(TypedDict):
    """``stands_for``: names that are mapped to a compute."""

    computes: list[ComputeAnswer]
    default: str
    stands_for: dict[str, str]


class DeletedCompute(TypedDict):
    """``default`` is the new default compute, if this was the default."""

    name: str
    default: str | None
