"""Follow a job in a notebook with a card that is redrawn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path
from allranks.sdk.jobs.follow import Following, answered
from allranks.sdk.jobs.notebook_card import card, metric_names

if TYPE_CHECKING:
    from allranks.api.jobs import LogLine

# The number of output lines shown.
_LINES = 12
# Points of a line in a chart: more than it has pixels would not be seen.
_POINTS = 300


def watch(name: str, every: float) -> None:
    """Show the job in the notebook and redraw it until it has ended.

    Raises UsageError without IPython.
    """
    try:
        from IPython.display import HTML, display  # lazy: notebooks have it
    except ImportError:
        hint = "outside of notebooks use job.wait(show_output=True)"
        raise UsageError("this is not a notebook", hint=hint) from None
    following = Following(find_server.connect, name)
    lines: deque[str] = deque([""], maxlen=_LINES)
    handle = display(HTML(drawn(name, lines)), display_id=True)
    due = time.monotonic() + every
    for piece in following.news():
        if piece:
            _add(lines, piece)
        if handle is not None and time.monotonic() >= due:
            handle.update(HTML(drawn(name, lines)))
            due = time.monotonic() + every
    if handle is not None:
        handle.update(HTML(drawn(name, lines)))


def _add(lines: deque[str], piece: LogLine) -> None:
    """Add output of a rank; progress bars overwrite their line."""
    text = piece["log"].encode(errors="surrogateescape").decode(errors="replace")
    first, *rest = text.split("\n")
    lines[-1] = (lines[-1] + first).rpartition("\r")[2]
    lines.extend(each.rpartition("\r")[2] for each in rest)


def drawn(name: str, lines: Iterable[str] = ()) -> str:
    """The card of a job as it is now."""
    job = _answer(job_path(name))
    series: list[Any] = []
    for metric in metric_names(job):
        path = f"/metrics?most={_POINTS}&metric={quote(metric, safe='')}"
        series += _answer(job_path(name, path))["series"]
    return card(job, series, [each for each in lines if each])


def _answer(path: str) -> Any:
    return answered(find_server.connect, lambda client: client.json("GET", path))
