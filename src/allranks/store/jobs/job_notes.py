"""What sweeps and pipelines note on themselves and on their children: a TypedDict for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class TrialNotes(TypedDict, total=False):
    """Of a trial: its ``parameters``, and the ``numbers`` by which they were drawn. ``judged``: up
    to this report by the policy, which ``stopped`` it for that reason. Once it has ended: its best
    ``value``, the number of its ``reports``, of those ``not_finite``, and without any the
    ``metrics`` that it reported instead."""

    parameters: Mapping[str, Any]
    numbers: Mapping[str, Any]
    judged: int
    stopped: str
    value: float | None
    reports: int
    not_finite: int
    metrics: Sequence[str]


class StepNotes(TypedDict, total=False):
    """Of a step: the job whose result it ``reused``, or why not, and the ``parts`` that a later
    step must have in common with it. ``closed``: those are recorded."""

    step: str
    reused: str
    not_reused: str
    parts: Mapping[str, Any] | None
    closed: bool


class SweepNotes(TypedDict, total=False):
    """Of a sweep: its ``best`` trial, and the numbers of those that run ``again``."""

    best: str | None
    again: list[int]


class PipelineNotes(TypedDict, total=False):
    """Of a pipeline: what its steps ``needs``, and of each of its ``outputs`` the job that wrote it
    and that job's name for it."""

    needs: Mapping[str, str]
    outputs: Mapping[str, list[str]]


class JobNotes(TrialNotes, StepNotes, SweepNotes, PipelineNotes, total=False):
    """Of any job. A pipeline's step may be a sweep."""
