"""Following a job in a notebook: one card that is drawn again as the job goes on."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path
from allranks.sdk.jobs.follow import Following, answered
from allranks.sdk.jobs.notebook_card import card

# The last lines that are shown.
_LINES = 12


def watch(name: str, every: float) -> None:
    """Show the job where the notebook is, anew every so many seconds, until it has ended.

    Raises UsageError where there is no IPython.
    """
    try:
        from IPython.display import HTML, display  # lazy: notebooks have it
    except ImportError:
        hint = "elsewhere: job.wait(show_output=True)"
        raise UsageError("there is no notebook to show the job in", hint=hint) from None
    following = Following(find_server.connect, name)
    lines: deque[str] = deque([""], maxlen=_LINES)
    handle = display(HTML(_drawn(name, lines)), display_id=True)
    due = time.monotonic() + every
    for piece in following.pieces():
        if piece:
            _add(lines, piece)
        if handle is not None and time.monotonic() >= due:
            handle.update(HTML(_drawn(name, lines)))
            due = time.monotonic() + every
    if handle is not None:
        handle.update(HTML(_drawn(name, lines)))


def _add(lines: deque[str], piece: dict[str, Any]) -> None:
    """What a rank has printed; progress bars overwrite their line."""
    text = piece["log"].encode(errors="surrogateescape").decode(errors="replace")
    first, *rest = text.split("\n")
    lines[-1] = (lines[-1] + first).rpartition("\r")[2]
    lines.extend(each.rpartition("\r")[2] for each in rest)


def _drawn(name: str, lines: deque[str]) -> str:
    job = answered(find_server.connect, lambda client: client.json("GET", job_path(name)))
    path = job_path(name, "/metrics/summary")
    metrics = answered(find_server.connect, lambda client: client.json("GET", path))["series"]
    return card(job, metrics, [each for each in lines if each])
