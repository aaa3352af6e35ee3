"""Differences between jobs: to the job that one restarts or its experiment's last completed one,
or among given jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks.core.diagnosis.explain import same_failure
from allranks.core.job.command_scripts import what_runs
from allranks.core.job.comparison import Facts, configurations, differences
from allranks.core.job.differences import Change, Side, changes
from allranks.core.job.list_filters import Query
from allranks.core.plan import InputTask
from allranks.errors import AllranksError
from allranks.masking import PASSED_ON, all_without_credentials, looks_secret, without_credentials
from allranks.server.jobs import view
from allranks.statuses import JobStatus
from allranks.store.files.blobs import Blobs
from allranks.store.files.code_listing import chunk_entries, content_text
from allranks.store.jobs.annotations import Annotations
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.jobs import ComparisonAnswer, EarlierJobs, Explanation, ListedJob

# Larger code is not compared file by file.
_LARGE = 64 << 20
# The most earlier jobs of an experiment to search.
_FAR = 500
_COMMIT = "azureml.git.commit"


class Earlier(NamedTuple):
    """``last``: the last completed job that ran the same; ``compared``: that one, or the one that
    the job was made from, and ``changed``: differences to it; ``same``: jobs that failed the same
    way before it."""

    last: str | None
    compared: str | None
    changed: list[Change]
    same: list[str]


def earlier_jobs(
    row: JobRow,
    failure: Explanation,
    began: float | None,
    records: Records,
    blobs: Blobs,
    made_from: str = "",
) -> Earlier:
    """Compare a failed job, whose ``failure`` ``began`` then, with the one that it was
    ``made_from``, if that is still there, or with earlier jobs of its experiment."""
    earlier = [each for each in _alike(row, records) if _ended_before(each, row, began)]
    good = next((e for e in earlier if _is_comparable(e, row)), None)
    others = [e for e in earlier if e.parent is None or e.parent != row.parent]
    same = [e.name for e in others if e.error and same_failure(e.error, failure)]
    last = None if good is None else good.name
    other = records.get(made_from) if made_from and records.has(made_from) else good
    if other is None:
        return Earlier(last, None, [], same)
    before, after = _files(other.plan.task.code, row.plan.task.code, blobs)
    changed = changes(_side(other, before), _side(row, after))
    return Earlier(last, other.name, changed, same)


def _is_comparable(earlier: JobRow, row: JobRow) -> bool:
    """Whether it completed, and what it ran is the same: an experiment may hold all kinds of jobs,
    the same step or trial need not be told apart."""
    commands = (each.plan.task.command for each in (earlier, row))
    is_same = (
        row.parent is not None or len({tuple(what_runs(command)) for command in commands}) == 1
    )
    return earlier.record.status is JobStatus.COMPLETED and is_same


def _alike(row: JobRow, records: Records) -> Iterator[JobRow]:
    """The jobs of its experiment, the newest first; of a trial the other trials, of a pipeline's
    step the same step of all pipelines."""
    query = Query(experiment=row.experiment, archived=None, parent=row.parent, limit=_FAR)
    step = ""
    if row.parent is not None and records.get(row.parent).type == "pipeline":
        step = row.name.removeprefix(row.parent)
        query = query._replace(parent=None, children=True, name=f"*{step}")
    for each in records.find(query):
        if isinstance(each, JobRow) and (not step or each.name == f"{each.parent}{step}"):
            yield each


def _ended_before(earlier: JobRow, row: JobRow, began: float | None) -> bool:
    if earlier.ended_at is None or earlier.id == row.id:
        return False
    return began is None or earlier.ended_at < began


def _side(row: JobRow, files: dict[str, str] | None) -> Side:
    task = row.plan.task
    passed = str((row.spec.get("properties") or {}).get(PASSED_ON) or "").split(",")
    recipe = task.recipe
    return Side(
        command=task.command,
        distribution=task.distribution,
        nodes=task.nodes,
        procs=task.procs,
        gpus=task.gpus,
        compute=row.plan.compute,
        code=task.code,
        files=files,
        environment=_environment(row),
        requirements=tuple(all_without_credentials(recipe.requirements)) if recipe else None,
        inputs={each.name: _input(each) for each in task.inputs},
        parameters={name: str(value) for name, value in row.notes.get("parameters", {}).items()},
        hosts=tuple(node.place.host for node in row.record.nodes if node.place is not None),
        variables={k: without_credentials(v) for k, v in task.variables.items()},
        hidden=frozenset(k for k in task.variables if looks_secret(k) or k in passed),
    )


def comparison(
    rows: Sequence[JobRow], records: Records, annotations: Annotations, blobs: Blobs
) -> ComparisonAnswer:
    """The jobs as in a list, and everything in which they differ."""
    notes = annotations.several(row.id for row in rows)
    values = records.last_values(row.id for row in rows)
    listed = [view.listed(row, notes.get(row.id), values) for row in rows]
    sides = [_side(row, None) for row in rows]
    facts = [
        Facts(
            side,
            _result(job),
            job["metrics"],
            frozenset(put.name for put in row.plan.task.inputs if put.text is not None),
            _differing(rows[0], row, blobs),
            str((row.spec.get("properties") or {}).get(_COMMIT) or ""),
            notes[row.id].parameters if row.id in notes else {},
        )
        for row, side, job in zip(rows, sides, listed, strict=True)
    ]
    return {
        "jobs": listed,
        "configurations": configurations(facts),
        "differences": [
            {"section": difference.section, "name": difference.name, "values": [*difference.values]}
            for difference in differences(facts)
        ],
    }


def _result(job: ListedJob) -> dict[str, str]:
    error = job["error"]
    code = job["exit_code"]
    return {
        "status": job["status"],
        **({} if error is None else {"error": str(error.get("reason"))}),
        **({} if code is None else {"exit code": str(code)}),
    }


def _differing(first: JobRow, row: JobRow, blobs: Blobs) -> dict[str, str]:
    """The files of the code that differ from the first job's."""
    was, now = _files(first.plan.task.code, row.plan.task.code, blobs)
    was, now = was or {}, now or {}
    gone = {name: "gone" for name in was if name not in now}
    new = {
        name: "changed" if name in was else "new"
        for name, digest in now.items()
        if was.get(name) != digest
    }
    return dict(sorted((gone | new).items()))


def _environment(row: JobRow) -> str:
    task = row.plan.task
    image = ""
    if task.container is not None:
        image = f"the image {task.container.image or task.container.context}"
    if task.recipe is not None and task.current is None:
        python = f"python {task.recipe.python}" if task.recipe.python else ""
        return " ".join(each for each in (task.environment, image, python) if each)
    if image:
        return image
    first = str(task.base.get("PATH", "")).partition(":")[0]
    return f"current ({first})" if first else "current"


def _input(each: InputTask) -> str:
    value = each.text if each.text is not None else each.asset or each.uri or each.source
    return without_credentials(value or "")


def _files(
    before: str | None, after: str | None, blobs: Blobs
) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """The hashes of files in chunks that only one of two snapshots has, for each; None: unknown."""
    if before is None or after is None or before == after:
        return None, None
    ours = blobs.chunk_digests(before)
    theirs = blobs.chunk_digests(after)
    if not ours or not theirs:
        return None, None
    try:
        was = [blobs.open(each) for each in ours if each not in theirs]
        now = [blobs.open(each) for each in theirs if each not in ours]
        if sum(each.stat().st_size for each in (*was, *now)) > _LARGE:
            return None, None
        return _hashes(was), _hashes(now)
    except (AllranksError, OSError):
        return None, None


def _hashes(chunks: list[Path]) -> dict[str, str]:
    return {entry.name: content_text(entry) for chunk in chunks for entry in chunk_entries(chunk)}


def as_json(earlier: Earlier) -> EarlierJobs:
    return {
        "last_completed": earlier.last,
        "compared_with": earlier.compared,
        "changed": [
            {"what": change.what, "before": change.before, "after": change.after}
            for change in earlier.changed
        ],
        "seen_before": len(earlier.same),
        "seen_in": earlier.same[:10],
    }
