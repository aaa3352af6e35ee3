"""Locate the files of a job by their addresses."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from allranks import folder_trees
from allranks.core.data.working_set import RECORDED
from allranks.core.environments import container
from allranks.core.job import file_addresses
from allranks.core.plan import OutputTask
from allranks.errors import Problem, SpecError
from allranks.settings import Home
from allranks.spec.fields.azureml_references import ARTIFACTS, OutputOf
from allranks.statuses import JobStatus
from allranks.store.files.log_times import FOLDER as LOG_TIMES
from allranks.store.jobs.job_rows import JobRow

# Folders of a job's record whose files are not the job's.
UNLISTED = (RECORDED, LOG_TIMES)


class FoundFile(NamedTuple):
    """A file or folder of a job at ``path``, inside the folder ``root``. If ``output.uri`` is set
    it is in a datastore instead."""

    path: Path
    root: Path
    output: OutputTask | None = None


def find(home: Home, row: JobRow, of: OutputOf) -> FoundFile:
    """The file's location, which may not exist. Raises SpecError for an unknown output, and for
    what lies behind a link to where the job's container saw nothing."""
    place = _find(home, row, of)
    is_stored = place.output is not None and place.output.uri
    roots = container.visible(row.plan.task, str(home.jobs / row.name / "attempt"))
    if not is_stored and folder_trees.resolved(place.path, roots) is None:
        message = f"a link of the job {row.name!r} leads out of its folders"
        raise SpecError(Problem(message, str(place.path), hint="copy what it leads to"))
    return place


def _find(home: Home, row: JobRow, of: OutputOf) -> FoundFile:
    outputs = [each.name for each in row.plan.task.outputs]
    if of.output and (of.output != ARTIFACTS or (ARTIFACTS in outputs and _wrote(row, of))):
        output = _named_output(row, of)
        whole = Path(output.path)
        root = whole.parent if output.is_file else whole
        return FoundFile(root / of.path if of.path else whole, root, output)
    record = home.jobs / row.name
    path = file_addresses.normal(of.path)
    roots = [record / "artifacts", record / "attempts" / str(row.record.attempt), record]
    existing = [root for root in roots if path and os.path.lexists(root / path)]
    root = (existing or roots)[0]
    return FoundFile(root / path, root)


def written_by(
    row: JobRow | None, of: OutputOf, find: Callable[[str], JobRow | None]
) -> tuple[JobRow | None, OutputOf]:
    """The job that wrote an output, and its own name for it: of a pipeline one of its steps'
    jobs. Raises SpecError for an output that no step has written, and like ``find``."""
    while row is not None and row.type == "pipeline":
        outputs = row.notes.get("outputs", {})
        if row.record.status is not JobStatus.COMPLETED and of.output not in outputs:
            return row, of
        if of.output not in outputs:
            has = ", ".join(f"`{each}`" for each in outputs) or "none"
            message = f"the pipeline {row.name!r} has no output {of.output!r}"
            raise SpecError(Problem(message, hint=f"its outputs are {has}"))
        job, output = outputs[of.output]
        row = find(job)
        of = of._replace(job=job, output=output)
    return row, of


def left_nothing(home: Home, row: JobRow, of: OutputOf) -> Problem:
    """The problem that the file does not exist, with the existing ones as hint."""
    path = f"named-outputs/{of.output}/{of.path}" if _is_named(of) else of.path
    what = f"no {of.path!r}" if of.path else "nothing"
    where = f" in its output {of.output!r}" if _is_named(of) else ""
    hint = file_addresses.hint(row.name, path, _addresses(home, row))
    return Problem(f"the job {row.name!r} has {what}{where}", hint=hint)


def below(
    folder: str, but: Collection[str] = (), left_out: Callable[[str], object] = lambda path: None
) -> Iterator[tuple[str, os.stat_result]]:
    """What is below a folder, sorted by their folders, without the folders ``but`` in it. Skips
    what a live job removes; ``left_out`` gets the files and folders whose path is too long for the
    kernel."""
    pending = [folder]
    while pending:
        above, folders = pending.pop(), list[str]()
        with contextlib.suppress(FileNotFoundError), os.scandir(above) as scan:
            entries = sorted(scan, key=lambda each: each.name)
            if above != folder:
                yield above, os.lstat(above)
            for entry in entries:
                if entry.name in but and entry.path == os.path.join(folder, entry.name):
                    continue
                if folder_trees.is_too_long(entry.path):
                    left_out(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.path, entry.stat(follow_symlinks=False)
        pending += reversed(folders)


def _is_named(of: OutputOf) -> bool:
    return of.output not in ("", ARTIFACTS)


def _addresses(home: Home, row: JobRow) -> Iterator[str]:
    record = str(home.jobs / row.name)
    for path, status in below(record, but=UNLISTED):
        if stat.S_ISREG(status.st_mode):
            yield file_addresses.address(path[len(record) + 1 :], row.record.attempt)


def _wrote(row: JobRow, of: OutputOf) -> bool:
    """Whether a job wrote to its own output `artifacts`. If not, that is Azure's default output:
    all that the job left."""
    output = _named_output(row, of)
    return bool(output.uri) or any(not stat.S_ISDIR(s.st_mode) for _, s in below(output.path))


def _named_output(row: JobRow, of: OutputOf) -> OutputTask:
    outputs = row.plan.task.outputs
    for output in outputs:
        if output.name == of.output:
            return output
    has = ", ".join(f"`{output.name}`" for output in outputs) or "none"
    message = f"the job {row.name!r} has no output {of.output!r}"
    raise SpecError(
        Problem(message, hint=f"its outputs are {has}; see allranks job files {row.name}")
    )
