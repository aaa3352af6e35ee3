"""A sweep as the API and ``--json`` show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.core.parents import early_termination
from allranks.core.parents import sweep as decisions
from allranks.core.parents.best_region import best_regions
from allranks.core.parents.sweep import Trial
from allranks.server.dependencies import Services
from allranks.server.mlflow.child import python
from allranks.server.parents.sweep.create import total_trials
from allranks.server.parents.sweep.importances import importances
from allranks.server.parents.sweep.reports import reports
from allranks.spec.sweep.job import AshaSampling, SweepJob
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api import jobs as api


def sweep(row: JobRow, services: Services, *, summary: bool = False) -> api.SweepAnswer:
    """The best trial and all trials of a sweep, the best first. ``summary``: also what each
    parameter is worth, which may take a second."""
    trials = Trials(row, services)
    trials.refresh()
    shown: api.SweepAnswer = {**trials.summary(), "trials": trials.ranked()}
    if summary:
        shown["parameter_summary"] = trials.parameters()
    return shown


class Trials:
    """The trials of a sweep for its viewers. Closed ones are read once."""

    def __init__(self, row: JobRow, services: Services) -> None:
        self._name, self._services = row.name, services
        spec = SweepJob.parse(row.spec)
        self._spec, self._goal, self._metric = row.spec, spec.goal, spec.metric
        self._space = spec.search_space
        self._policy = spec.policy
        self._total = total_trials(spec)
        self._values: dict[int, float | None] = {}
        self.states: dict[int, ChildState] = {}

    def refresh(self) -> list[int]:
        """Read the record; returns the numbers of trials that changed."""
        newest = max((child.id for child in self.states.values()), default=-1)
        unclosed = tuple(e.id for e in self.states.values() if "value" not in e.notes)
        changed = []
        for state in self._services.children.of(self._name, above=newest, ids=unclosed):
            value = state.notes.get("value")
            if "value" not in state.notes:
                values = reports(self._services.points, state.id, self._metric)
                value = decisions.best_value(self._goal, values)
            before = self.states.get(state.number), self._values.get(state.number)
            if before != (state, value):
                changed.append(state.number)
            self.states[state.number], self._values[state.number] = state, value
        return changed

    def summary(self) -> api.SweepSummary:
        """Counts by status, the best trial, and what is wrong with the primary metric."""
        best = decisions.best(self._goal, self._trials())
        shown: api.BestTrial | None = None
        if best is not None:
            shown = {**self.shown(best.number), "metric": self._metric}
        counts = Counter(str(child.status) for child in self.states.values())
        return {
            "objective": {"goal": self._goal, "primary_metric": self._metric}
            if self._metric
            else None,
            "total_trials": self._total,
            "counts": dict(counts),
            "stopped_early": sum(map(_is_stopped_early, self.states.values())),
            "best": shown,
            "note": self._note(),
        }

    def ranked(self) -> list[api.TrialAnswer]:
        """All trials, the best first, those without a value last."""
        trials = self._trials()
        ranked = [trial.number for trial in decisions.rank(self._goal, trials)]
        numbers = {*ranked}
        rest = [trial.number for trial in trials if trial.number not in numbers]
        return [self.shown(number) for number in (*ranked, *rest)]

    def parameters(self) -> dict[str, api.ParameterSummary]:
        """Of each parameter its importance, and its values among the best trials."""
        ranked = decisions.rank(self._goal, self._trials())
        drawn = [self.states[trial.number].notes.get("parameters", {}) for trial in ranked]
        values = [trial.value for trial in ranked if trial.value is not None]
        share = importances(self._space, self._goal, list(zip(drawn, values, strict=True)))
        return {
            name: {
                "importance": share.get(name),
                "best": {
                    "trials": region.trials,
                    "low": region.low,
                    "high": region.high,
                    "values": [*region.values],
                },
            }
            for name, region in best_regions(drawn).items()
        }

    def shown(self, number: int) -> api.TrialAnswer:
        """One trial. ``duration`` in seconds."""
        state, took = self.states[number], None
        if state.started_at is not None and state.ended_at is not None:
            took = state.ended_at - state.started_at
        shown: api.TrialAnswer = {
            "job": state.name,
            "number": number,
            "status": str(state.status),
            "parameters": dict(state.notes.get("parameters", {})),
            "value": self._values[number],
            "duration": took,
            "stopped_early": state.notes["stopped"] if _is_stopped_early(state) else None,
            "error": None if state.error is None else state.error["message"],
        }
        if not_finite := state.notes.get("not_finite"):
            shown["not_finite"] = not_finite
        return shown

    def _trials(self) -> list[Trial]:
        return [
            Trial(number, child.status, value=self._values[number])
            for number, child in sorted(self.states.items())
        ]

    def _note(self) -> str | None:
        """Said as soon as a trial that ran has ended without a value, or with too few reports for
        the policy that would stop it."""
        states = self.states.values()
        closed = [
            child for child in states if "value" in child.notes and child.started_at is not None
        ]
        done = [e for e in closed if e.status in TERMINAL and e.status is not JobStatus.FAILED]
        if not self._metric or not done:
            return None
        if any(child.notes["reports"] for child in closed):
            return self._never_judged(done)
        hint = metric_hint(self._spec, self._metric, self.states)
        return f"no trial has reported {self._metric!r} yet; {hint}"

    def _never_judged(self, done: Sequence[ChildState]) -> str | None:
        completed = [child for child in done if child.status is JobStatus.COMPLETED]
        if self._policy is None or not completed:
            return None
        first = early_termination.first_interval(self._policy)
        most = max(int(child.notes["reports"]) for child in completed)
        if most >= first:
            return None
        return (
            f"early stopping cannot stop a trial: it first looks at report {first} of "
            f"{self._metric!r}, and a trial reports {most}; lower "
            + ("min_resource" if isinstance(self._policy, AshaSampling) else _INTERVALS)
        )


def _is_stopped_early(state: ChildState) -> bool:
    """A trial may complete before the order to stop reaches it."""
    return "stopped" in state.notes and state.status is JobStatus.CANCELED


_INTERVALS = "delay_evaluation or evaluation_interval"


def metric_hint(spec: Mapping[str, Any], metric: str, states: Mapping[int, ChildState]) -> str:
    """What trials reported instead of the primary metric of the sweep ``spec``, and how to read it
    from their output."""
    if pattern := ((spec.get("trial") or {}).get("metrics") or {}).get(metric):
        first = states[min(states)].name
        return f"{pattern!r} found no number; see what they print: allranks job logs {first}"
    names = sorted({name for child in states.values() for name in child.notes.get("metrics", ())})
    listed = f"they reported {', '.join(names)}" if names else "they reported no metric"
    mlflow = (
        "; for what scripts log to MLflow: pip install 'allranks[mlflow]', then restart the server"
    )
    return (
        f"{listed}; to read it from the output: -m '{metric}={metric}: ([0-9.]+)', in a file "
        f"`trial.metrics.{metric}: '{metric}: ([0-9.]+)'`, in Python `metrics={{…}}`"
        f"{mlflow if not names and python() is None else ''}"
    )
