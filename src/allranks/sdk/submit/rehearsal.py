"""Rehearse that a job goes on after a rank was killed: for real, and compared with one that was
left alone.

Both are jobs as all others, of the same spec and the same code, one after the other: they have the
same machine to themselves. Nothing that is the user's is touched: each begins with an empty state
of its own, which goes when it is known what there is to know, and keeps its outputs to itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from allranks.errors import Conflict, NotFound, UsageError
from allranks.plan.amounts import size_text
from allranks.plan.insights import rehearsal
from allranks.plan.insights.rehearsal import HINTS, VERIFIED, Result, Trail, Verdict
from allranks.plan.plan import pack
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path, state_path
from allranks.sdk.jobs import interrupt
from allranks.sdk.submit.rehearsal_run import Run, Say, ask, cancel
from allranks.sdk.submit.submission import generate_name, prepare, send

# Of a state that is written to all the time no version is made while it is: after so many seconds
# with something in it a rank is killed nevertheless.
_RESTLESS = 5.0
# Seconds between two looks of its agents at the state: a version is there after three or four.
_LOOK = 0.1
# And as many without another file: the rest of a checkpoint may come a moment later.
_SETTLED = 0.3
# With a checkpoint there the first steps of a metric are waited for as long again, and so long.
_PATIENCE = 60.0
# A second attempt that has run so many times as long as the first one had to, and tells no step.
_HANGS = 3.0


class Rehearsal(NamedTuple):
    """What came of it, in a ``sentence``, with ``notes`` and a ``hint`` (or none). ``killed`` and
    ``uninterrupted`` are the jobs' names, the second empty where it was not needed. ``seconds``
    passed from the kill of ``rank`` to the first step that was logged again."""

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
        """As JSON has it: what is no finite number is text."""
        told = pack(self)
        found = told.pop("found")
        told = {"verified": self.verified, "verdict": found["verdict"], **told, **found}
        worded: dict[str, Any] = _worded(told)
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
    """Run the job to its first checkpoint, kill its last rank, let it go on, and compare what it
    logs with the same job uninterrupted; ``say`` hears how far it is.

    On every way out both jobs are canceled, and their states gone. Raises AllranksError where the
    job is refused.
    """
    if not 0 <= tolerance < 1:
        hint = "a part of the value: 0.001 is a thousandth; 0 allows no difference at all"
        raise UsageError(f"{tolerance:g} is no tolerance", where="--tolerance", hint=hint)
    stem = f"rehearsal-{generate_name()}"
    wanted = {**spec_of(spec), "name": stem}
    submission, snapshot = prepare(
        wanted, base, note=lambda told: say(f"note: {told}"), allow_large=allow_large_code
    )

    def submit(suffix: str, **more: Any) -> Run:
        name = f"{stem}-{suffix}"
        named = {**submission["spec"], "name": name, **more}
        try:
            with find_server.connect() as client:
                made = send(client, {**submission, "spec": named, "look": _LOOK}, snapshot)
        except KeyboardInterrupt:
            cancel(name)
            raise
        return Run(made, say)

    with submit("killed", retry=_RETRY) as run:
        killed = _Killed(run)
        verdict, more = killed.rehearse()
    before, after = killed.before, killed.after
    if verdict is not None:
        return _told(killed, Result(verdict), tolerance, more)
    if rehearsal.begins_anew(before, after) or rehearsal.clock(before) not in after:
        return _told(killed, rehearsal.judge(before, after, {}), tolerance)
    with submit("uninterrupted") as other:
        whole, trouble = _whole(other, before, after)
    found = rehearsal.judge(before, after, whole, tolerance)
    if trouble:
        found = Result(Verdict.DISTURBED)
    return _told(killed, found, tolerance, trouble, other.name)


# The first job goes on after its killed rank, once, and after nothing else.
_RETRY = {"max_attempts": 2, "on": ["user"]}


def spec_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same job with a state, and places for its outputs, of its own."""
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
    """The job that would be killed, for who wants to see its plan first."""
    return {**spec_of(spec), "retry": _RETRY}


def _told(
    killed: _Killed, found: Result, tolerance: float, more: str = "", uninterrupted: str = ""
) -> Rehearsal:
    return Rehearsal(
        found,
        rehearsal.sentence(found, tolerance, more),
        HINTS[found.verdict],
        tuple(rehearsal.notes(found)),
        tolerance,
        killed.run.name,
        uninterrupted,
        killed.rank,
        killed.seconds,
    )


class _Killed:
    """The job that is killed: how it fared before, and after."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rank: int | None = None
        self.seconds: float | None = None
        # By our own clock: since when its ranks run, something of it is kept, and that is whole.
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
        """None, once there is enough to be judged; else why there never will be."""
        for _ in self.run.looks():
            kills = int(self.rank is not None)
            if self.run.job["attempts"] > 1 + kills:
                return Verdict.DISTURBED, f"attempt {1 + kills} failed, and nobody had killed it"
            if kills:
                self._after_the_kill()
                if silent := self._silent():
                    return Verdict.FAILS, f"it has logged no step in {silent:.0f} s"
            elif self._before_the_kill():
                return Verdict.NO_STEPS, rehearsal.backwards(self.run.points.get(1, {}))
            if self._is_over():
                return None, ""
        return self._ended()

    def _before_the_kill(self) -> bool:
        """Kill a rank once there is a checkpoint, and steps; whether there will never be any."""
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
        """What a whole checkpoint has in it, in words; empty without one."""
        state = self._kept()
        if state is None:
            return ""
        now = time.monotonic()
        self._kept_at = self._kept_at or now
        if state["files"] != self._files:
            self._files, self._counted_at = state["files"], now
        whole = any(each["files"] for each in state["versions"])
        settled = whole and now - self._counted_at >= _SETTLED
        if not settled and now - self._kept_at < _RESTLESS:
            return ""
        return f"{state['files']} file{'s' * (state['files'] > 1)}, {size_text(state['size'])}"

    def _kept(self) -> dict[str, Any] | None:
        """The job's state, if there is a file in it."""
        try:
            state: dict[str, Any] = ask("GET", state_path(self.run.name))
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
        run.say(f"rank {rank} is killed; the last {by} is that of step {max(self.before[by])}")

    def _after_the_kill(self) -> None:
        if not self._again_at and self.after:
            self._again_at = time.monotonic()
            self.seconds = self._since_the_kill()
            took = "" if self.seconds is None else f" after {self.seconds:.1f} s"
            self.run.say(f"it trains again{took}")

    def _silent(self) -> float:
        """For how long its second attempt has told no step, once that is too long; else 0."""
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
        """Seconds until the first step that was logged by the second attempt."""
        for event in ask("GET", job_path(self.run.name, "/events")):
            if event["kind"] == "kill_asked":
                asked = datetime.fromisoformat(event["at"]).timestamp()
                return max(0.0, self.run.began[2] - asked)
        return None

    def _ended(self) -> tuple[Verdict | None, str]:
        """The job has ended by itself: is there enough to be judged?"""
        job, error = self.run.job, self.run.job["error"] or {}
        why = str(error.get("message") or job["status"])
        if self.rank is not None and job["attempts"] == 2:
            if job["status"] == "Completed" and not self.after:
                return Verdict.DISTURBED, "its second attempt was done and had logged no step"
            if job["status"] == "Completed":
                return None, ""
            # Who cancels it, and a node that is lost, say nothing of the script.
            if job["status"] == "Failed" and error["blame"] == "user":
                return Verdict.FAILS, why
        if job["status"] != "Completed":
            return Verdict.DISTURBED, why
        if not self._held_at and not self._kept():
            return Verdict.NO_CHECKPOINT, "the job is done, and its state is empty"
        if rehearsal.clock(self.before) is None:
            return Verdict.NO_STEPS, rehearsal.backwards(self.run.points.get(1, {}))
        why = "the job was done before a rank could be killed"
        if self.rank is not None:
            why = f"the job was done when the kill of rank {self.rank} came"
        elif not self._held_at:
            why += "; a checkpoint has to lie there whole for a second first"
        return Verdict.TOO_LITTLE, why


def _whole(run: Run, before: Trail, after: Trail) -> tuple[Trail, str]:
    """What the job logs that nobody touches, as far as it is compared; or why it never came so
    far."""
    for _ in run.looks():
        if rehearsal.is_covered(before, after, run.trail(1)):
            return run.trail(1), ""
    if run.job["status"] == "Completed":
        return run.trail(1), ""
    return {}, str((run.job["error"] or {}).get("message") or run.job["status"])
