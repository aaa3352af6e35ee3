"""The data of a job's events, by their kind; see `allranks.events`."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from allranks.api.jobs import JobError


class FinishedData(TypedDict):
    """Of `finished`: how the job ended."""

    status: str
    exit_code: int | None
    error: JobError | None
    # Of the outputs that became data assets.
    assets: NotRequired[dict[str, str]]
    notes: NotRequired[list[str]]


class OutputAssets(TypedDict, total=False):
    """The data assets of a completed job, by output, and notes on those that were not made."""

    assets: dict[str, str]
    notes: list[str]
