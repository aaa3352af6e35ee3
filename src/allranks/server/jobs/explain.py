"""Gather the facts about a failed job, from which ``core.diagnosis.explain`` finds the cause."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import folder_trees
from allranks.core.diagnosis import explain
from allranks.core.diagnosis.causes import TABLE, Cause
from allranks.core.diagnosis.explain import Evidence, Explanation, FailedAttempt, RankEnd
from allranks.core.diagnosis.rank_failure import COLOURS
from allranks.core.distributions.topology import log_name, ranks, world
from allranks.core.lifecycle import decide
from allranks.core.plan import Recipe
from allranks.errors import Conflict
from allranks.events import Event, Kind
from allranks.masking import without_credentials
from allranks.server.jobs import compare
from allranks.server.jobs.hosts import host_of
from allranks.settings import Home
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.files.blobs import Blobs
from allranks.store.files.logs import Logs
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.jobs import FailureExplanation

log = logging.getLogger("allranks.explaining")

# Bytes of a log's end that are read, the most ranks whose logs are read, and the largest log (in
# bytes) whose lines are counted.
_TAIL, _RANKS, _COUNTED = 1 << 17, 64, 32 << 20
_LONGEST = 2000


def explanation_of(row: JobRow, records: Records, home: Home) -> Explanation | None:
    """Why the job failed; None after an internal error, which must not keep a job from ending."""
    try:
        return _explained(row, failure_facts(row, records, home), home)
    except Exception:
        log.exception("%s: cannot explain its failure", row.name)
        return None


def full_explanation(row: JobRow, records: Records, home: Home, blobs: Blobs) -> FailureExplanation:
    """A failed job in detail: the cause, the log lines around it, failures of other ranks that
    followed, and differences to the job that it restarts or the experiment's last completed one.
    Raises Conflict for a job that neither failed nor is held."""
    held = decide.held_until(row.record) is not None
    if row.record.status is not JobStatus.FAILED and not held:
        status = "has not ended" if row.record.status not in TERMINAL else f"is {row.record.status}"
        hint = f"allranks job show {row.name}"
        why = f" ({row.error['message']})" if row.error else ""
        raise Conflict(f"{row.name} {status}{why}: no failure to explain", hint=hint)
    facts = failure_facts(row, records, home)
    explanation = _explained(row, facts, home)
    others = explain.other_ranks(facts, explanation)
    rank, lines = explain.context_lines(facts, explanation)
    as_json = explain.as_json(explanation, partial(host_of, row))
    began = (decide.failure(row.record) or decide.outcome(row.record)).at or row.ended_at
    first = next(iter(records.events(row.name)), None)
    made_from = "" if first is None else str(first.event.data.get("restarts", ""))
    return {
        "name": row.name,
        "experiment_name": row.experiment,
        "attempt": row.record.attempt,
        "error": row.error,
        **as_json,
        # That of the record, which every other command shows; a held job has none yet.
        "fix": (row.error and row.error["hint"]) or explanation.fix,
        "blame": str(TABLE[explanation.cause].blame),
        "rank": rank,
        "lines": [without_credentials(line) for line in lines],
        "followed": [
            {
                "rank": other.rank,
                "node": other.node,
                "host": host_of(row, other.node),
                "said": without_credentials(other.said),
            }
            for other in others
        ],
        **compare.as_json(compare.earlier_jobs(row, as_json, began, records, blobs, made_from)),
    }


def _explained(row: JobRow, facts: FailedAttempt, home: Home) -> Explanation:
    """The explanation with the number of its log line; only that log is counted."""
    explanation = explain.explain(facts)
    explanation = explanation._replace(fix=explanation.fix.replace(" JOB ", f" {row.name} "))
    evidence = explanation.evidence
    if explanation.cause is Cause.BAD_ARGUMENT and (name := _rejected_input(row, evidence)):
        explanation = explanation._replace(fix=f"correct the input `{name}`: --set inputs.{name}=…")
    if explanation.cause is Cause.MODULE_MISSING and evidence:
        fix = without_build(row.plan.task.recipe, evidence.line) or explanation.fix
        explanation = explanation._replace(fix=fix)
    rank = next((each for each in facts.ranks if evidence and each.rank == evidence.rank), None)
    if evidence is None or evidence.at is None or evidence.number is not None or rank is None:
        return explanation
    name = log_name(rank.rank, world(row.plan.task))
    before = _lines_of(Logs(home.jobs / row.name).path(row.record.attempt, name), rank.skipped)
    number = None if before is None else before + 1 + evidence.at
    return explanation._replace(evidence=evidence._replace(number=number))


def without_build(recipe: Recipe | None, line: str) -> str:
    """What to do about a module that a built-in environment has only where the index has a build of
    it; empty for others."""
    module = re.search(r"No module named '(\w+)", line)
    if recipe is None or module is None or module[1] not in recipe.optional:
        return ""
    return (
        f"the package index has no build of {module[1]} for the PyTorch of this node: run on a "
        "node with NVIDIA GPUs, or add an index to pip.conf that has it, such as PyTorch's own"
    )


def _rejected_input(row: JobRow, evidence: Evidence | None) -> str | None:
    """The input whose option, as argparse and click quote it, the script rejected."""
    option = evidence and re.search(r"--([\w-]+)", evidence.line)
    inputs = row.spec.get("inputs") or {}
    return next((one for one in inputs if option and _same(one, option[1])), None)


def _same(name: str, option: str) -> bool:
    return name.replace("-", "_").lower() == option.replace("-", "_").lower()


def failure_facts(row: JobRow, records: Records, home: Home) -> FailedAttempt:
    """The facts about the job's last attempt."""
    held = row.record.then is None and decide.failure(row.record)
    failure = held or decide.outcome(row.record)
    attempt = row.record.attempt
    events = [event.event for event in records.events(row.name) if event.event.attempt == attempt]
    ends = {e.rank: e for e in events if e.kind is Kind.RANK_ENDED and e.rank is not None}
    # How a held rank failed; afterwards it was ended somehow.
    ends |= {e.rank: e for e in events if e.kind is Kind.HELD and e.rank is not None}
    task = row.plan.task
    everyone = [(each.rank, each.node) for each in ranks(task)]
    order = sorted(everyone, key=lambda each: _urgency(each[0], failure.rank, ends.get(each[0])))
    logs = Logs(home.jobs / row.name)
    rank_ends = []
    for index, (rank, node) in enumerate(order):
        name = log_name(rank, world(task))
        lines, skipped = read(logs.path(attempt, name)) if index < _RANKS else ((), 0)
        rank_ends.append(_rank_end(rank, node, ends.get(rank), lines, skipped))
    return FailedAttempt(
        failure.reason,
        failure.node,
        failure.rank,
        failure.message,
        tuple(sorted(rank_ends)),
        _facts(events),
        failure.cause,
    )


def _urgency(rank: int, first: int | None, end: Event | None) -> tuple[bool, bool, float, int]:
    failed = end is not None and end.data.get("code") != 0
    at = _ended_at(end) if end is not None else 0.0
    return rank != first, not failed, at, rank


def _ended_at(end: Event) -> float:
    return float(end.data.get("ended_at") or end.data.get("failed_at") or end.at)


def _rank_end(
    rank: int, node: int, end: Event | None, lines: tuple[str, ...], skipped: int
) -> RankEnd:
    rank_end = RankEnd(rank, node, lines=lines, number=int(not skipped), skipped=skipped)
    if end is None:
        return rank_end
    return rank_end._replace(
        code=end.data.get("code"),
        signal=end.data.get("signal"),
        at=_ended_at(end),
        behind_pipe=end.data.get("behind_pipe") is True,
    )


def _facts(events: Iterable[Event]) -> dict[int, Mapping[str, Any]]:
    kinds = (Kind.HELD, Kind.ENDED)
    ended = (e for e in events if e.kind in kinds and e.node is not None)
    return {e.node: e.data["facts"] for e in ended if e.node is not None and e.data.get("facts")}


def read(path: Path) -> tuple[tuple[str, ...], int]:
    """The last lines of a log, and the number of bytes before them."""
    try:
        with folder_trees.open_file(path) as file:
            skipped = max(0, file.seek(0, 2) - _TAIL)
            file.seek(skipped)
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return (), 0
    text = COLOURS.sub("", text)
    # Of lines that overwrite themselves (progress bars) keep the last text.
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line[:_LONGEST] for line in lines), skipped


def _lines_of(path: Path, size: int) -> int | None:
    """The number of newlines in the first bytes of a log; None if it is too large."""
    try:
        with folder_trees.open_file(path) as file:
            return file.read(size).count(b"\n") if size <= _COUNTED else None
    except OSError:
        return None
