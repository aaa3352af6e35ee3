"""Follow a job in a notebook with a card that is redrawn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
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
    output = Output()
    handle = display(HTML(drawn(name)), display_id=True)
    due = time.monotonic() + every
    for piece in following.news():
        if piece:
            output.add(piece)
        if handle is not None and time.monotonic() >= due:
            handle.update(HTML(drawn(name, output.lines())))
            due = time.monotonic() + every
    if handle is not None:
        handle.update(HTML(drawn(name, output.lines())))


class Output:
    """The last lines of all ranks, behind their numbers where there are several. Progress bars
    overwrite their line."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        # The unfinished line of each rank.
        self._rests: dict[int, str] = {}

    def add(self, piece: LogLine) -> None:
        rank = piece["rank"]
        text = piece["log"].encode(errors="surrogateescape").decode(errors="replace")
        *whole, rest = (self._rests.get(rank, "") + text).split("\n")
        self._lines.extend((rank, _last_state(each)) for each in whole)
        # What comes after a carriage return overwrites the line.
        self._rests[rank] = _last_state(rest) + ("\r" if rest.endswith("\r") else "")

    def lines(self) -> list[str]:
        rests = [(rank, _last_state(rest)) for rank, rest in sorted(self._rests.items())]
        lines = [(rank, line) for rank, line in (*self._lines, *rests) if line]
        several = len(self._rests) > 1
        return [f"rank {rank} | {line}" if several else line for rank, line in lines][-_LINES:]


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


def drawn(name: str, lines: Iterable[str] = ()) -> str:
    """The card of a job as it is now, with the last lines of the rank that failed if one did."""
    job = answered(find_server.connect, lambda client: client.ask(routes.show_job, name))
    failed = (job.get("error") or {}).get("rank")
    if failed is not None:
        lines = _last_lines(name, failed)
    series: list[Any] = []
    for metric in metric_names(job):
        words: dict[str, Any] = {"most": _POINTS, "metric": metric}
        series += answered(
            find_server.connect,
            lambda client: client.ask(routes.job_metrics, name, **words)["series"],  # noqa: B023
        )
    return card(job, series, lines)


def _last_lines(name: str, rank: int) -> list[str]:
    request = {"ranks": [rank], "attempts": [-1], "follow": False, "tail": _LINES}
    output = Output()
    for piece in Following(find_server.connect, name, request=request).pieces():
        output.add(piece)
    return output.lines()
