"""Follow the files of trackers while ranks run, and write what is new for the record.

Points and parameters are appended to a file that the link sends; images go to the job's
``logs/images``.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.agent.processes.rank_processes import Members
from allranks.agent.trackers import kept_images
from allranks.agent.trackers.kept_images import KeptImages
from allranks.agent.trackers.names import Prefixes
from allranks.agent.trackers.readings import Reader, Reading, lines
from allranks.agent.trackers.tree import Tree
from allranks.agent.trackers.writers import Writers
from allranks.core.plan import Task
from allranks.core.text import printable
from allranks.spec.fields.metric_formats import BUILTIN

# Seconds between two looks, and the share of a CPU that looking for files may take.
_LOOK, _SHARE = 0.5, 0.005
# Parameters of a job.
_PARAMETERS = 2000
# Seconds in which the rest is read when the ranks have ended, and notes on files.
_REST, _NOTES = 120.0, 20


class _File(NamedTuple):
    """``kind`` is the tracker's name; ``rank`` wrote it, in the job's folder ``root``."""

    path: Path
    root: Path
    kind: str
    rank: int
    reader: Reader


class TrackerFiles:
    """Files below ``folders`` from now on, of which the working folder is the first.
    ``look_at`` when ranks run, ``finish`` when they have ended; ``start`` in between, or not."""

    def __init__(self, task: Task, node: int, folders: Sequence[Path], into: Path) -> None:
        self._task, self._into = task, into
        self._writers = Writers(task, node, folders[0])
        self._roots: Callable[[], Mapping[int, int]] = dict
        # Clocks of files are a little behind.
        self._began = time.time() - 0.05
        self._tree = Tree(folders, self._began)
        self._due = 0.0
        self._files: list[_File] = []
        self._prefixes = Prefixes(metric.name for metric in task.metrics)
        self._parameters: dict[str, str] = {}
        self._images = KeptImages()
        # The tags of TensorBoard's files by folder.
        self._tags: dict[Path, set[str]] = {}
        # Files of which it is not known yet who writes them.
        self._waiting: list[Path] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True)

    def look_at(self, roots: Callable[[], Mapping[int, int]]) -> None:
        """``roots`` returns the first process of each rank."""
        self._roots = roots
        self._writers.see({rank: [root] for rank, root in roots().items()})

    def start(self) -> None:
        """Read while the ranks run, too."""
        with contextlib.suppress(RuntimeError):  # no thread is free: all is read later
            self._thread.start()

    def see(self, members: Members) -> None:
        """Called with the processes of the ranks from time to time."""
        self._writers.see(members.ranks)

    def finish(self) -> None:
        """Read the rest."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        until = time.monotonic() + _REST
        self._find(is_last=True)
        for file in self._files:
            self._read(file, until)

    def notes(self) -> list[dict[str, Any]]:
        """For the record, each with a ``message``."""
        notes = []
        for file in self._files:
            path, reader = printable(str(file.path)), file.reader
            if reader.damage:
                notes.append(
                    f"{path}: {printable(reader.damage)}; what follows is not in the metrics"
                )
            if reader.bad.count:
                notes.append(f"{path}: {reader.bad.message()}")
        if len(notes) > _NOTES:
            notes[_NOTES:] = [f"{len(notes) - _NOTES} more notes on files of trackers are left out"]
        notes += self._images.notes()
        return [{"message": message} for message in notes]

    def _run(self) -> None:
        while not self._over.wait(_LOOK):
            if time.monotonic() >= self._due:
                began = time.thread_time()
                self._find()
                self._due = time.monotonic() + (time.thread_time() - began) / _SHARE
            for file in self._files:
                self._read(file)

    # ------------------------------------------------------------ files

    def _find(self, is_last: bool = False) -> None:
        self._waiting += self._tree.new_files(is_last)
        if self._waiting:
            self._writers.look(self._roots())
        for path in [*self._waiting]:
            rank = self._writers.of(path, is_last)
            if rank is not None:
                self._waiting.remove(path)
                self._files.append(self._file(path, rank))

    def _file(self, path: Path, rank: int) -> _File:
        root = self._tree.root_of(path)
        if path.suffix == ".wandb":
            from allranks.agent.trackers.wandb_files import WandbFile  # lazy: few jobs use it

            return _File(path, root, "wandb", rank, WandbFile(path, root))
        if path.suffix == ".db":
            from allranks.agent.trackers.trackio_files import TrackioFile  # lazy: as above

            reader = TrackioFile(path, self._began, root)
            return _File(path, root, "trackio", rank, reader)
        from allranks.agent.trackers.tensorboard_files import EventFile  # lazy: as above

        tags = self._tags.setdefault(path.parent, set())
        return _File(path, root, "tensorboard", rank, EventFile(path, root, tags))

    def _read(self, file: _File, until: float | None = None) -> None:
        try:
            for part in file.reader.read(is_last=until is not None):
                self._write(file, part)
                if until is None and self._over.is_set():
                    return
                if until is not None and time.monotonic() > until:
                    file.reader.damage = f"not all was read in {_REST:g} s"
                    return
        except FileNotFoundError:
            pass  # it was removed
        except OSError as error:  # the disk is full, or it is no file of the job
            if until is not None:
                file.reader.damage = (error.strerror or str(error)).lower()
        except Exception as error:  # a job wrote the file: it may hold anything
            file.reader.damage = repr(error)[:200]

    # ------------------------------------------------------------ the record

    def _write(self, file: _File, part: Reading) -> None:
        if not (part.points or part.parameters or part.images):
            return
        kind, rank = file.kind, file.rank
        if kind == "tensorboard":
            prefix = self._prefixes.of_folder(rank, file.path.parent)
        else:
            # W&B's file is named after the run's id: a run that was resumed has several.
            run = file.path.name if kind == "wandb" else part.run
            prefix = self._prefixes.of_run(kind, rank, run, part.run)
        rows = [
            [self._prefixes.metric(kind, rank, prefix + name), self._series(rank), step, at, value]
            for name, step, at, value in part.points
        ]
        with folder_trees.open_file(self._into, "ab") as target:
            target.writelines(lines(rows, file.reader.bad))
            if new := self._new_parameters(prefix, part.parameters):
                target.write(json.dumps({"parameters": new}).encode() + b"\n")
        for image in part.images:
            named = image._replace(name=prefix + image.name)
            self._images.keep(named, rank or None, file.root, self._put)

    def _series(self, rank: int) -> int | None:
        """The rank of a series. What a known format prints may have any name: the first rank's
        have a series of their own."""
        has_any = any(metric.pattern == BUILTIN for metric in self._task.metrics)
        return None if rank == 0 and has_any else rank

    def _new_parameters(self, prefix: str, values: Mapping[str, str]) -> dict[str, str]:
        named = {prefix + name: text for name, text in values.items()}
        new = {name: text for name, text in named.items() if self._parameters.get(name) != text}
        room = _PARAMETERS - len(self._parameters)
        new = dict(list(new.items())[: max(0, room)])
        self._parameters |= new
        return new

    def _put(self, path: str, image: bytes) -> None:
        # The job can write there, too: no link of its own may lead out.
        record = Path(self._task.record)
        with folder_trees.replace_file(record / kept_images.FOLDER / path, record) as copy:
            copy.write(image)
