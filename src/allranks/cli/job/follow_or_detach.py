"""Follow a job on a terminal or in a pipe, and exit with its exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from allranks.api import routes
from allranks.cli.job.files import left
from allranks.cli.output import show
from allranks.cli.output.failure import (
    exit_code,
    hold_hint,
    lost_output,
    metric_notes,
    print_error,
    took,
    unsaved,
)
from allranks.cli.output.interrupts import act_on_interrupt
from allranks.cli.output.phases import Phases, every
from allranks.cli.output.rank_output import Printer, releasing
from allranks.core.node_names import with_host
from allranks.errors import ServerError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import Following
from allranks.statuses import HELD, VERDICTS, Purpose, Reason

if TYPE_CHECKING:
    from allranks.api.jobs import EventAnswer, JobAnswer, JobProgress, StreamedJob
    from allranks.api.metrics import MetricSummary
    from allranks.cli.job.children import ChildrenViewer
    from allranks.sdk.jobs.follow import Children

SUCCESS = "Completed"
# What events about the working folder, and about checkpoints, say of themselves.
FOLDER, CHECKPOINT = "working folder", "checkpoint"


def viewer(
    job: JobAnswer,
    *,
    quiet: bool,
    json: bool,
    ranks: list[int] | None = None,
    prefixed: bool | None = None,
    raw: bool = False,
    fold: bool = True,
    logs: bool = True,
) -> Viewer | ChildrenViewer:
    """The viewer of a job; without ``logs``, the output of a parent's children is left out."""
    if job["type"] == "command":
        count = len(ranks) if ranks else job["processes"]
        to = sys.stderr if json else sys.stdout
        printer = Printer(job["nodes"], to, prefixed, raw, fold=count if fold else 0)
        return Viewer(job["name"], printer, ranks, quiet)
    from allranks.cli.job import parents  # lazy: few jobs have children

    return parents.viewer(
        job, quiet=quiet, json=json, ranks=ranks, prefixed=prefixed, raw=raw, logs=logs
    )


def follow_to_end(
    options: argparse.Namespace,
    job: JobAnswer,
    *,
    cancel: bool = False,
    folder: str | None = None,
    outputs: Mapping[str, str] | None = None,
    **view: Any,
) -> int:
    """Stream the job until it ends; returns its exit code. ``cancel``: an interrupt cancels it. Its
    files are then downloaded into ``folder``, and ``outputs`` into theirs. For ``view`` see
    ``viewer``."""
    name = job["name"]
    follower = viewer(job, quiet=options.quiet, json=options.json, **view)
    if cancel:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ended = _follow(follower, options, name, cancel)
    except KeyboardInterrupt:
        return _interrupted(name, cancel)
    if options.json:
        show.as_json(ended)
    code = verdict(ended, quiet=options.quiet)
    if folder is not None:
        from allranks.cli.job.download import fetch_ended  # lazy: few are downloaded at once

        fetched = fetch_ended(ended, folder, options.quiet)
        code = code or int(not fetched)
    if outputs:
        from allranks.cli.job.download import fetch_outputs  # lazy: as above

        fetched = fetch_outputs(ended, outputs, options.quiet)
        code = code or int(not fetched)
    return code


def _interrupted(name: str, cancel: bool) -> int:
    outcome = f"Canceling {name}" if cancel else f"Detached; {name} is still running"
    hint = f"allranks job stream {name} to follow, allranks job cancel {name} to cancel"
    show.talk(f"\n{outcome}\n\nhint: {hint}")
    return 130


def _follow(
    follower: Viewer | ChildrenViewer, options: argparse.Namespace, name: str, cancel: bool
) -> JobAnswer:
    """Follow the job; with ``cancel``, the first interrupt cancels it and waits for its end."""
    try:
        act_on_interrupt(options)
        return follower.follow()
    except KeyboardInterrupt:
        if not cancel:
            raise
    show.talk(f"\ncanceling {name}; press Ctrl-C again to stop waiting")
    find_server.ask(routes.cancel_job, name)
    return follower.follow()


class Viewer:
    """Shows one job: output, why it waits, restarts.

    Continues where it was after an interruption.
    """

    def __init__(self, name: str, printer: Printer, ranks: list[int] | None, quiet: bool) -> None:
        self._name, self._printer, self._quiet = name, printer, quiet
        self._line = show.StatusLine(quiet)
        self._following = Following(
            find_server.connect, name, request={"ranks": ranks}, changed=self._changed
        )
        self._attempt, self._reason = 1, ""
        self._held = ("", 0)
        self._continued = 1
        self._job: StreamedJob | None = None
        self._phases = Phases()
        # For writers to the terminal: output, or the line with the elapsed time.
        self._writing = threading.Lock()

    def follow(self) -> JobAnswer:
        """Show the job until it has ended; returns the job."""
        try:
            with ExitStack() as drawing:
                if self._line.is_on:
                    drawing.enter_context(every(1.0, self._writing, self._draw))
                drawing.enter_context(releasing(self._printer, self._writing, self._line.clear))
                for piece in self._following.pieces():
                    with self._writing:
                        self._line.clear()
                        self._printer.put(piece)
        finally:
            self._line.clear()
            self._printer.end()
        return self._following.job

    def _changed(self, job: StreamedJob, _: Children) -> None:
        if self._quiet:
            return
        with self._writing:
            self._say_held(job)
            self._say_continued(job)
            if self._line.is_on:
                self._show_phase(job)
            else:
                self._say_reason(job)

    def _show_phase(self, job: StreamedJob) -> None:
        """On a terminal: the current phase at the bottom, and a line for each long phase."""
        self._job = job
        self._again(job)
        if ended := self._phases.changed(cast("JobProgress", job).get("phase")):
            self._line.clear()
            self._printer.hide()
            show.talk(ended)
        self._draw()

    def _draw(self) -> None:
        """Draw nothing below a rank's unfinished line, such as a progress bar."""
        job = self._job
        waits = job is not None and job["status"] in _WAITING
        if (
            job is None
            or not cast("JobProgress", job).get("phase")
            or (self._printer.is_live and not waits)
        ):
            self._line.clear()
            return
        self._printer.hide()
        self._line.say(self._phases.text(job))

    def _say_reason(self, job: StreamedJob) -> None:
        """In a pipe, print each reason for waiting once."""
        self._again(job)
        reason = job["status_reason"] or ""
        if reason and reason != self._reason and not reason.startswith(HELD):
            show.talk(f"{self._name} {job['status']}: {reason}")
        self._reason = reason

    def _say_held(self, job: StreamedJob) -> None:
        """That the failed job stays as it is, once for each attempt."""
        reason, held = job["status_reason"] or "", (job["name"], job["attempts"])
        if reason.startswith(HELD) and self._held != held:
            self._held = held
            self._line.clear()
            self._printer.hide()
            show.talk(f"{self._name} is {reason}\n\nhint: {hold_hint(self._name)}")

    def _say_continued(self, job: StreamedJob) -> None:
        """What a later attempt has of the working folder, once it has started, and which
        checkpoints those before have left in part."""
        if job["attempts"] <= self._continued or job["status"] in _WAITING:
            return
        self._again(job)
        shown, self._continued = self._continued, job["attempts"]
        for note in _of_files(_events(self._name), shown, self._continued):
            show.talk(f"note: {note}")

    def _again(self, job: StreamedJob) -> None:
        """The note that the job restarts, and why."""
        if job["attempts"] > self._attempt:
            self._line.clear()
            self._printer.hide()
            self._attempt = job["attempts"]
            show.talk(f"{self._name}: {_why_again(self._name, self._attempt)}")


_BY_USER = VERDICTS[Reason.CANCELED].sentence
_WAITING = ("NotStarted", "Queued", "Provisioning", "Preparing")


def _events(name: str) -> list[EventAnswer]:
    return find_server.ask(routes.job_events, name)


def _of_files(events: Sequence[EventAnswer], first: int, attempt: int) -> list[str]:
    """The notes on checkpoints of the attempts from ``first`` to ``attempt``, and on the state and
    the working folder of ``attempt``; of several nodes that continue, the first."""
    begins = f"attempt {attempt} continues with"
    state, nothing = f"{begins} the state folder", f"{begins} no files of earlier ones"
    notes = dict.fromkeys(
        event["data"]["message"]
        for event in events
        if (event["attempt"] == attempt and event["data"].get("about") == FOLDER)
        or event["data"].get("message") == state
        or (first <= event["attempt"] <= attempt and event["data"].get("about") == CHECKPOINT)
    )
    folders = [note for note in notes if note.startswith(begins) and note not in (state, nothing)]
    left_out = folders[1:]
    if folders or state in notes:
        left_out.append(nothing)
    return [note for note in notes if note not in left_out]


def earlier_attempts(name: str, attempt: int) -> list[str]:
    """Why each attempt before ``attempt`` failed."""
    events = _events(name) if attempt > 1 else []
    return [f"attempt {n} failed ({_why_ended(events, n)})" for n in range(1, attempt)]


def _why_again(name: str, attempt: int) -> str:
    """Why the previous attempt ended, and where the new one runs."""
    events = _events(name)
    ends = [e for e in events if e["kind"] in ("relaunched", "regrouped")]
    ends = [event for event in ends if event["attempt"] == attempt - 1]
    new = bool(ends) and ends[-1]["kind"] == "relaunched"
    where = "new nodes" if new else "the same nodes"
    why = _why_ended(events, attempt - 1)
    return f"attempt {attempt - 1} failed ({why}); attempt {attempt} starts on {where}"


def _why_ended(events: Sequence[EventAnswer], attempt: int) -> str:
    before = [event for event in events if event["attempt"] == attempt]
    whys = [e["data"]["message"] for e in before if e["kind"] == "ended" and e["data"]["message"]]
    whys += [f"node {e['node']} was lost" for e in before if e["kind"] == "lost"]
    closing = [e["data"] for e in before if e["kind"] == "closing"]
    whys += [end["reason"] for end in closing if end["purpose"] != Purpose.RESUBMIT]
    hosts = {e["node"]: e["data"].get("host") for e in before if e["kind"] == "ready"}
    # Those of this machine need no name.
    is_here = {*hosts.values()} <= {None, os.uname().nodename}
    return whys[0] if is_here else with_host(whys[0], hosts.get)


def verdict(job: JobAnswer, *, quiet: bool = False) -> int:
    """Print how the job ended and where its files are. Returns its exit code."""
    if not quiet and job["type"] == "command":
        _show_result(job)
    elif not quiet:
        from allranks.cli.job import parents  # lazy: few jobs have children

        parents.show_result(job)
    print_error(job, quiet=quiet)
    return exit_code(job)


def _show_result(job: JobAnswer) -> None:
    tries = f", {job['attempts']} attempts" if job["attempts"] > 1 else ""
    canceled = job["error"] if job["status"] == "Canceled" else None
    why = f": {canceled['message']}" if canceled and canceled["message"] != _BY_USER else ""
    show.talk(f"{job['name']}: {job['status']}{took(job)}{tries}{why}", job["status"])
    events: list[EventAnswer] = []
    with contextlib.suppress(ServerError):  # how it ended is known
        events = _events(job["name"])
    for line in left(job, events):
        show.talk(line)
    for note in _notes(job, events):
        show.talk(f"note: {note}")


def _notes(job: JobAnswer, events: Sequence[EventAnswer]) -> list[str]:
    """What was asked for and did not work: metrics without points, ranks that started cold; what
    a restarted job went on with; checkpoints that are not what they seem; and what is not saved."""
    notices = [
        event["data"]
        for event in events
        # An agent says the first ones once.
        if event["data"].get("about") in ("warm", CHECKPOINT, "pipe", "apart", "mlflow")
    ]
    of_metrics = metric_notes(events, job["attempts"])
    reported = _reported(job) if any("missed" in note for note in of_metrics) else set()
    # Each node reports this separately; ignore it if the pattern matched on another node.
    notices += [note for note in of_metrics if note.get("missed") not in reported]
    notes = [*_of_files(events, 1, 1), *(notice["message"] for notice in notices)]
    return list(dict.fromkeys([*notes, *lost_output(events), *unsaved(events, job["attempts"])]))


def _reported(job: JobAnswer) -> set[str]:
    """The requested metrics that have points in the last attempt."""
    summary = find_server.ask(routes.metrics_summary, job["name"])
    series: list[MetricSummary] = summary["series"]
    names = {one["name"] for one in series if one["attempt"] == job["attempts"]}
    requested = set(job["spec"].get("metrics") or ())
    if not names - requested:
        return names
    from allranks.spec.fields.metric_formats import KNOWN  # lazy: few jobs have others

    return names | (requested & KNOWN.keys())  # they have points under other names
