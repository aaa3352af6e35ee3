"""How a job ended: the exit code of commands that wait for it, and the reason in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show
from allranks.cli.output.tables import cut
from allranks.core.node_names import node_name
from allranks.events import LOST_OUTPUT

if TYPE_CHECKING:
    from allranks.api.jobs import EventAnswer, JobError, JobRecord

# The length limit of a line of evidence.
_WIDE = 160
_AGAIN = {True: " (running it again may help)", False: "", None: ""}


def exit_code(job: JobRecord) -> int:
    """0 for a completed job, else its own code; 1 if no rank gave one."""
    return 0 if job["status"] == "Completed" else job["exit_code"] or 1


def why(error: JobError) -> list[str]:
    """Why it failed, in one or two lines, beyond the error's message."""
    evidence = error.get("evidence")
    shown = evidence is None or evidence["line"] in error["message"]
    if error.get("cause") in (None, "UNKNOWN") or (error["cause"] == error["reason"] and shown):
        return []
    lines = [f"cause: {error['explanation']}{_AGAIN[error['retryable']]}"]
    if evidence and evidence["rank"] is not None and not shown:
        where = f"rank {evidence['rank']} on {node_name(evidence['node'], evidence.get('host'))}"
        if evidence["number"]:
            where += f", line {evidence['number']} of its log"
        lines.append(f"  {where}: {cut(evidence['line'], _WIDE)}")
    return lines


def took(job: JobRecord) -> str:
    """` after 3.2 s`, since its start; empty if it has not run or not ended."""
    if not job["started_at"] or not job["ended_at"]:
        return ""
    began, ended = map(datetime.fromisoformat, (job["started_at"], job["ended_at"]))
    return f" after {show.seconds((ended - began).total_seconds())}"


def metric_notes(events: Iterable[EventAnswer], attempt: int) -> list[Mapping[str, Any]]:
    """The notes on metrics in an attempt, each with a ``message``. ``missed`` names a metric that
    did not match on one node; it may on another."""
    notes = (event["data"] for event in events if event["attempt"] == attempt)
    return [note for note in notes if note.get("about") == "metrics"]


def lost_output(events: Iterable[EventAnswer]) -> list[str]:
    """That output of ranks may be missing, of each attempt the first node's note."""
    notes: dict[int, str] = {}
    for event in events:
        if event["data"].get("about") == LOST_OUTPUT:
            notes.setdefault(event["attempt"], event["data"]["message"])
    return [*notes.values()]


def unsaved(events: Iterable[EventAnswer], attempt: int) -> list[str]:
    """What could not be saved of an attempt, and where it is."""
    notes = (event["data"] for event in events if event["attempt"] == attempt)
    # Those with `doing` say what an agent waits for.
    return [n["message"] for n in notes if n.get("about") == "unsaved" and "doing" not in n]


def hold_hint(name: str) -> str:
    """What can be done with a job that is held."""
    return (
        f"allranks job debug {name} opens pdb where it failed, allranks job shell {name} a shell "
        f"beside it; allranks job explain {name} says why, allranks job release {name} ends it"
    )


def print_error(job: JobRecord, *, quiet: bool) -> None:
    """The error of a job that has ended, and what to do."""
    error = job["error"]
    if error and job["status"] != "Canceled":
        show.talk(f"error: {error['message']}")
        for line in () if quiet else why(error):
            show.talk(line)
        if error["hint"] and not quiet:
            show.talk(f"\nhint: {error['hint']}")
