"""Test that a job resumes after a rank is killed, compared with an undisturbed run.

Both are ordinary jobs with the same spec and code, run one after the other. Each has its own empty
state, deleted afterwards, and its own outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api import routes
from allranks.core.amounts import counted, size_text
from allranks.core.insights import rehearsal
from allranks.core.insights.rehearsal import HINTS, VERIFIED, Result, Trail, Verdict
from allranks.core.packing import pack
from allranks.errors import Conflict, NotFound, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs import interrupt
from allranks.sdk.submit.names import generate_name
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.rehearsal_run import Run, Say, ask, cancel
from allranks.sdk.submit.send import send

if TYPE_CHECKING:
    from allranks.api.assets import ShownState
    from allranks.api.common import Document

# A state that changes all the time gets no version: after this many seconds with content a rank is
# killed anyway.
_RESTLESS = 5.0
# Seconds between scans of the state; a version takes three or four scans.
_LOOK = 0.1
# The same time without a new file: the rest of a checkpoint may follow.
_SETTLED = 0.3
# After a checkpoint, wait again as long, and at least this long, for the first steps of a metric.
_PATIENCE = 60.0
# Give up on a second attempt after this many times the first one's duration without a step.
_HANGS = 3.0


class Rehearsal(NamedTuple):
    """The result: a ``sentence``, ``notes`` and an optional ``hint``. ``killed`` and
    ``uninterrupted`` are the jobs' names, the second empty if not needed. ``seconds`` is the time
    from the kill of ``rank`` to the next logged step."""

    found: Result
    sentence: str
    hint: str
    notes: tuple[str, ...]
    tolerance: float
    killed: str
    uninterrupted: str
    rank: int | None
    seconds: float | None

    @property
    def verified(self) -> bool:
        return self.found.verdict in VERIFIED

    def to_dict(self) -> dict[str, Any]:
        """JSON data, with numbers that are not finite as text."""
        data = pack(self)
        result = data.pop("found")
        data = {"verified": self.verified, "verdict": result["verdict"], **data, **result}
        worded: dict[str, Any] = _worded(data)
        return worded


def _worded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _worded(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def rehearse(
    spec: Mapping[str, Any],
    base: Path,
    *,
    tolerance: float = rehearsal.TOLERANCE,
    say: Say = lambda sentence: None,
    allow_large_code: bool = False,
) -> Rehearsal:
    """Run the job to its first checkpoint, kill its last rank, let it resume, and compare its
    metrics with an uninterrupted run.

    ``say`` receives progress. Both jobs are canceled and their states deleted on every exit path.
    Raises AllranksError if the job is refused.
    """
    if not 0 <= tolerance < 1:
        hint = "it is relative: 0.001 is a thousandth; 0 allows no difference"
        raise UsageError(f"{tolerance:g} is not a tolerance", where="--tolerance", hint=hint)
    stem = f"rehearsal-{generate_name()}"
    job = {**spec_of(spec), "name": stem}
    submission, snapshots = prepare(
        job, base, note=lambda sentence: say(f"note: {sentence}"), allow_large=allow_large_code
    )

    def submit(suffix: str, **more: Any) -> Run:
        name = f"{stem}-{suffix}"
        named = {**submission["spec"], "name": name, **more}
        try:
            with find_server.connect() as client:
                made = send(client, {**submission, "spec": named, "look": _LOOK}, snapshots)
        except KeyboardInterrupt:
            cancel(name)
            raise
        return Run(made, say)

    with submit("killed", retry=_RETRY) as run:
        killed = _Killed(run)
        verdict, more = killed.rehearse()
    before, after = killed.before, killed.after
    if verdict is not None:
        return _summary(killed, Result(verdict), tolerance, more)
    if rehearsal.begins_anew(before, after) or rehearsal.clock(before) not in after:
        return _summary(killed, rehearsal.judge(before, after, {}), tolerance)
    with submit("uninterrupted") as other:
        whole, trouble = _whole(other, before, after)
    result = rehearsal.judge(before, after, whole, tolerance)
    if trouble:
        result = Result(Verdict.DISTURBED)
    return _summary(killed, result, tolerance, trouble, other.name)


# The first job restarts once after the killed rank, and after nothing else.
_RETRY = {"max_attempts": 2, "on": ["user"]}


def spec_of(spec: Mapping[str, Any]) -> Document:
    """The same job with its own state and outputs."""
    dropped = ("name", "state", "retry")
    kept = {key: value for key, value in spec.items() if key not in dropped}
    kept["tags"] = {**(spec.get("tags") or {}), "rehearsal": "resume"}
    if outputs := spec.get("outputs"):
        kept["outputs"] = {
            name: {"type": value["type"]} if isinstance(value, Mapping) and "type" in value else {}
            for name, value in outputs.items()
        }
    return kept


def dry(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of the job that would be killed."""
    return {**spec_of(spec), "retry": _RETRY}


def _summary(
    killed: _Killed, result: Result, tolerance: float, more: str = "", uninterrupted: str = ""
) -> Rehearsal:
    return Rehearsal(
        result,
        rehearsal.sentence(result, tolerance, more),
        HINTS[result.verdict],
        tuple(rehearsal.notes(result)),
        tolerance,
        killed.run.name,
        uninterrupted,
        killed.rank,
        killed.seconds,
    )


class _Killed:
    """The job with the killed rank, before and after the kill."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rank: int | None = None
        self.seconds: float | None = None
        # By our own clock: since when ranks run, the state has content, and the content is
        # complete.
        self._ran_at = self._kept_at = self._held_at = 0.0
        self._files, self._counted_at = 0, 0.0
        self._killed_at = self._again_at = self._resumed_at = 0.0

    @property
    def before(self) -> Trail:
        return self.run.trail(1)

    @property
    def after(self) -> Trail:
        return self.run.trail(2)

    def rehearse(self) -> tuple[Verdict | None, str]:
        """Returns None once there is enough data for a verdict, or why there will not be."""
        for _ in self.run.looks():
            kills = int(self.rank is not None)
            if self.run.job["attempts"] > 1 + kills:
                return Verdict.DISTURBED, f"attempt {1 + kills} failed without a kill"
            if kills:
                self._after_the_kill()
                if silent := self._silent():
                    return Verdict.FAILS, f"no step was logged in {silent:.0f} s"
            elif self._before_the_kill():
                return Verdict.NO_STEPS, rehearsal.backwards(self.run.points.get(1, {}))
            if self._is_over():
                return None, ""
        return self._ended()

    def _before_the_kill(self) -> bool:
        """Kill a rank once there are a checkpoint and steps; returns why there never will be."""
        run, now = self.run, time.monotonic()
        if run.job["started_at"] is None:
            return False
        self._ran_at = self._ran_at or now
        held = self._held()
        if not held:
            return False
        if not self._held_at:
            self._held_at = now
            run.say(f"{run.name} has written a checkpoint: {held}")
        by = rehearsal.clock(self.before)
        if by is not None:
            self._kill(by)
        return by is None and now - self._held_at > max(_PATIENCE, self._held_at - self._ran_at)

    def _held(self) -> str:
        """Describe the complete checkpoint; empty without one."""
        state = self._kept()
        if state is None:
            return self._held_in_working_folder()
        now = time.monotonic()
        self._kept_at = self._kept_at or now
        if state["files"] != self._files:
            self._files, self._counted_at = state["files"], now
        whole = any(version["files"] for version in state["versions"])
        settled = whole and now - self._counted_at >= _SETTLED
        if not settled and now - self._kept_at < _RESTLESS:
            return ""
        return f"{state['files']} file{'s' * (state['files'] > 1)}, {size_text(state['size'])}"

    def _held_in_working_folder(self) -> str:
        """Describe the checkpoint that the server has of the working folder, which has complete
        files only. Other files are there, too, such as logs, so its name counts for a while."""
        work = self.run.job.get("working_folder")
        now = time.monotonic()
        if work is None:
            return ""
        self._kept_at = self._kept_at or now
        if work["files"] != self._files:
            self._files, self._counted_at = work["files"], now
        waits = _RESTLESS if work["checkpoints"] else _PATIENCE
        settled = work["checkpoints"] and now - self._counted_at >= _SETTLED
        if not settled and now - self._kept_at < waits:
            return ""
        return f"{counted(work['files'], 'file')} of the working folder, newest {work['newest']}"

    def _kept(self) -> ShownState | None:
        """The job's state, if it has a file."""
        try:
            state: ShownState = ask(routes.show_state, self.run.name)
        except NotFound:
            return None
        return state if state["files"] else None

    def _kill(self, by: str) -> None:
        run = self.run
        rank = max(each["rank"] for each in run.job["ranks"] if each["role"] != "ps")
        try:
            interrupt.kill(run.name, rank)
        except Conflict:
            return  # it has just ended
        self.rank, self._killed_at = rank, time.monotonic()
        run.say(f"killing rank {rank}; the last {by} is of step {max(self.before[by])}")

    def _after_the_kill(self) -> None:
        if not self._again_at and self.after:
            self._again_at = time.monotonic()
            self.seconds = self._since_the_kill()
            took = "" if self.seconds is None else f" after {self.seconds:.1f} s"
            self.run.say(f"training again{took}")

    def _silent(self) -> float:
        """Seconds without a step of the second attempt, if too long, else 0."""
        if self._again_at or self.run.job["attempts"] < 2 or self.run.job["status"] != "Running":
            return 0.0
        now = time.monotonic()
        self._resumed_at = self._resumed_at or now
        silent = now - self._resumed_at
        most = max(_PATIENCE, _HANGS * (self._killed_at - self._ran_at))
        return silent if silent > most else 0.0

    def _is_over(self) -> bool:
        if not self._again_at:
            return False
        took = self._killed_at - self._ran_at
        takes = time.monotonic() - self._again_at
        anew = rehearsal.begins_anew(self.before, self.after)
        return anew or rehearsal.is_enough(self.before, self.after, took, takes)

    def _since_the_kill(self) -> float | None:
        """Seconds until the first step of the second attempt."""
        for event in ask(routes.job_events, self.run.name):
            if event["kind"] == "kill_asked":
                killed_at = datetime.fromisoformat(event["at"]).timestamp()
                return max(0.0, self.run.began[2] - killed_at)
        return None

    def _ended(self) -> tuple[Verdict | None, str]:
        """Whether an ended job has enough data for a verdict."""
        job, error = self.run.job, self.run.job["error"] or {}
        why = str(error.get("message") or job["status"])
        if self.rank is not None and job["attempts"] == 2:
            if job["status"] == "Completed" and not self.after:
                return Verdict.DISTURBED, "its second attempt ended without logging a step"
            if job["status"] == "Completed":
                return None, ""
            # A cancel or a lost node says nothing about the script.
            if job["status"] == "Failed" and error["blame"] == "user":
                return Verdict.FAILS, why
        if job["status"] != "Completed":
            return Verdict.DISTURBED, why
        if not self._held_at and not self._kept():
            return Verdict.NO_CHECKPOINT, (
                "the job ended with an empty state and no checkpoint in its working folder"
            )
        if rehearsal.clock(self.before) is None:
            return Verdict.NO_STEPS, rehearsal.backwards(self.run.points.get(1, {}))
        why = "the job ended before a rank could be killed"
        if self.rank is not None:
            why = f"the job ended before the kill of rank {self.rank}"
        elif not self._held_at:
            why += "; a checkpoint must be complete for a second first"
        return Verdict.TOO_LITTLE, why


def _whole(run: Run, before: Trail, after: Trail) -> tuple[Trail, str]:
    """The metrics of the undisturbed job as far as they are compared, or why it ended early."""
    for _ in run.looks():
        if rehearsal.is_covered(before, after, run.trail(1)):
            return run.trail(1), ""
    if run.job["status"] == "Completed":
        return run.trail(1), ""
    return {}, str((run.job["error"] or {}).get("message") or run.job["status"])
