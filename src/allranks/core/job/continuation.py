"""What a job that continues another one starts with: what that job's next attempt would find.

The next attempt of a job finds its `./outputs` and `./logs`, SageMaker's two folders, its named
outputs and its state. The first four lie in the job's record, so a new job needs copies of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

from allranks.core.amounts import counted, size_text
from allranks.core.data.garbage_rules import span
from allranks.core.data.state_manifest import Entries
from allranks.core.plan import OutputTask, Task
from allranks.masking import without_credentials

# Folders of the record that every attempt finds, and where named outputs lie in it.
SHARED = ("artifacts/outputs", "artifacts/logs", "artifacts/model", "artifacts/data")
_NAMED = "named-outputs"
# The newest file is often a pointer to the checkpoint, not the checkpoint.
_SHOWN = 3


class Carryover(NamedTuple):
    """``folders`` of the record to copy, as paths in it; ``notes``: what is not carried over."""

    folders: tuple[str, ...]
    notes: tuple[str, ...] = ()


class File(NamedTuple):
    """A file that was carried over; ``path`` is in the job's record, or below `state/`."""

    path: str
    size: int
    modified: float


class Carried(NamedTuple):
    """What a job got of the job ``of``: how many files and bytes, and the newest of the files.
    ``kept``: how many files of its working folder it did not get, because ``of`` completed."""

    of: str
    files: int = 0
    size: int = 0
    newest: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()
    kept: int = 0

    def add(self, files: Iterable[File]) -> Carried:
        """With these files, too."""
        more = [*files]
        newest = nlargest(_SHOWN, (*self.newest, *more), key=_likely)
        size = self.size + sum(file.size for file in more)
        return self._replace(files=self.files + len(more), size=size, newest=tuple(newest))

    def sentence(self, now: float) -> str:
        """Which files the job goes on from, as a person is told."""
        kept = ""
        if self.kept:
            kept = f"{counted(self.kept, 'file')} that {self.of} kept of its working folder"
        if not self.files:
            if kept:
                return f"{self.of} completed, so its outputs, logs and state go on, and not {kept}"
            return f"{self.of} left no files to continue from"
        listed = ", ".join(
            f"{file.path} ({size_text(file.size)}, {span(max(0.0, now - file.modified))} old)"
            for file in self.newest
        )
        summary = f"{counted(self.files, 'file')} of {self.of} ({size_text(self.size)})"
        without = f"; without {kept}, because it completed" if kept else ""
        return f"continues from {summary}; newest: {listed}{without}"


def _likely(file: File) -> tuple[bool, float]:
    """Orders files by how likely they are to be the checkpoint."""
    return not file.path.startswith("artifacts/logs/"), file.modified


def carryover(old: Task, new: Task) -> Carryover:
    """What of the record of ``old`` its continuation ``new`` gets."""
    before = {output.name: output for output in old.outputs}
    folders, notes = [*SHARED], []
    for output in new.outputs:
        if (was := before.pop(output.name, None)) is None:
            continue
        if _in_record(was, old) and _in_record(output, new):
            folders.append(f"{_NAMED}/{output.name}")
        elif output.brought:
            notes.append(_starts_empty(output, "it cannot be downloaded"))
        elif _place(was) != _place(output):
            notes.append(_starts_empty(output, f"{old.job} wrote it to {_place(was)}"))
    notes += [
        f"the output {name} of {old.job} is left out: this job has no output of that name"
        for name in before
    ]
    if new.state and new.state != old.state:
        notes.append(f"the state of {old.job} is left out: this job has the state {new.state}")
    return Carryover(tuple(folders), tuple(notes))


def _starts_empty(output: OutputTask, why: str) -> str:
    return f"the output {output.name} goes to {_place(output)}; its files are not copied: {why}"


def _place(output: OutputTask) -> str:
    return without_credentials(output.uri or output.path)


def _in_record(output: OutputTask, task: Task) -> bool:
    return not output.uri and output.path.startswith(f"{task.record}/{_NAMED}/")


def files_of_state(entries: Entries) -> list[File]:
    """The files of a state folder, by its manifest."""
    return [
        # A name that is not UTF-8 cannot be recorded as it is.
        File(f"state/{path.encode(errors='replace').decode()}", entry.size, entry.mtime_ns / 1e9)
        for path, entry in entries.items()
        if entry.what == "file"
    ]
