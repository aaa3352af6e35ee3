"""What a job's attempts have left: in its state, its outputs, the files kept of its working folder
and its metrics."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from allranks import folder_trees
from allranks.core.lifecycle import repeated_time_limits
from allranks.core.lifecycle.repeated_time_limits import Left
from allranks.core.packing import unpack
from allranks.events import Kind
from allranks.server.assets.state_folders import States
from allranks.settings import Home
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from allranks.store.metric_points import METRIC, Points

# Folders of the record with results. Logs are none: each attempt has new ones.
_RESULTS = (
    "artifacts/outputs",
    "artifacts/model",
    "artifacts/data",
    "artifacts/work",
    "named-outputs",
)


def before(row: JobRow, records: Records) -> Left:
    """What was there after the last attempt that ended by a time limit."""
    events = (event.event for event in records.events(row.name))
    left = [e.data["left"] for e in events if e.kind is Kind.RELAUNCHED and "left" in e.data]
    return unpack(Left, left[-1]) if left else Left()


def now(row: JobRow, earlier: Left, home: Home, states: States, points: Points) -> Left:
    """What is there now, with all that ``earlier`` has."""
    by_path = dict(_files(row, home, states))
    files = earlier.files | {zlib.crc32(path.encode(errors="replace")) for path in by_path}
    steps = [point.step for _, point in points.newest(row.id, METRIC)]
    if earlier.step is not None:
        steps.append(earlier.step)
    too_many = len(files) > repeated_time_limits.MOST_FILES
    contents = zlib.crc32(repr(sorted(by_path.items())).encode(errors="replace"))
    return Left(
        max(steps, default=None),
        earlier.files if too_many else files,
        contents,
        too_many or _writes_elsewhere(row, home),
    )


def _writes_elsewhere(row: JobRow, home: Home) -> bool:
    """Whether it works in place, or an output is not in its record."""
    task, record = row.plan.task, f"{home.jobs / row.name}/"
    outside = any(output.uri or not output.path.startswith(record) for output in task.outputs)
    return bool(task.in_place) or outside


def _files(row: JobRow, home: Home, states: States) -> Iterator[tuple[str, str]]:
    """Each file, with what changes when it is written again."""
    if states.is_known(row):
        for path, entry in states.of(row).entries().items():
            if entry.what == "file":
                yield f"state/{path}", entry.sha256
    record = home.jobs / row.name
    for folder in _RESULTS:
        for above, _, names in folder_trees.walk(record / folder):
            for place in (Path(above, name) for name in names):
                status = place.lstat()
                yield str(place.relative_to(record)), f"{status.st_size} {status.st_mtime_ns}"
