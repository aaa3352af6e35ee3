"""Follow the files of trackers while ranks run, and write what is new for the record.

Points and parameters are appended to a file that the link sends; images go to the job's
``logs/images``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks.agent.processes.rank_processes import Members
from allranks.agent.trackers.found import Found, Image, Reader
from allranks.agent.trackers.names import Prefixes, image_path
from allranks.agent.trackers.tree import Tree
from allranks.core.distributions.topology import ranks_of, world
from allranks.core.plan import Task

# Seconds between two looks, and the share of a CPU that looking for files may take.
_LOOK, _SHARE = 0.5, 0.005
# Points in a line, parameters of a job, images and their bytes.
_LINE, _PARAMETERS, _IMAGES, _BYTES = 500, 2000, 10_000, 1 << 30
# Seconds in which the rest is read when the ranks have ended.
_REST = 120.0
IMAGES = "artifacts/logs/images"


class _File(NamedTuple):
    """``kind`` is the tracker's name; ``rank`` wrote it."""

    path: Path
    kind: str
    rank: int
    reader: Reader


class TrackerFiles:
    """Files below ``roots`` from now on. ``start`` when ranks run, ``finish`` when they have
    ended."""

    def __init__(self, task: Task, node: int, roots: Sequence[Path], into: Path) -> None:
        self._task, self._node, self._into = task, node, into
        self._ranks = [member.rank for member in ranks_of(task, node)]
        # Clocks of files are a little behind.
        self._began = time.time() - 0.05
        self._tree = Tree(roots, self._began)
        self._due = 0.0
        self._files: list[_File] = []
        self._prefixes = Prefixes()
        self._parameters: dict[str, str] = {}
        self._images = Counter[str]()
        self._image_bytes = 0
        self._left_out = Counter[str]()
        # The rank of each process that was seen.
        self._pids: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def see(self, members: Members) -> None:
        """Called with the processes of the ranks from time to time."""
        for rank, pids in members.ranks.items():
            self._pids.update(dict.fromkeys(pids, rank))

    def finish(self) -> None:
        """Read the rest."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        until = time.monotonic() + _REST
        self._find(again=True)
        for file in self._files:
            self._read(file, until)

    def notes(self) -> list[dict[str, Any]]:
        """For the record, each with a ``message``."""
        notes = [
            f"{file.path}: {file.reader.damage}; what follows is not in the metrics"
            for file in self._files
            if file.reader.damage
        ]
        notes += [f"{count} images were left out: {why}" for why, count in self._left_out.items()]
        return [{"message": message} for message in notes]

    def _run(self) -> None:
        while not self._over.wait(_LOOK):
            if time.monotonic() >= self._due:
                began = time.monotonic()
                self._find()
                now = time.monotonic()
                self._due = now + (now - began) / _SHARE
            for file in self._files:
                self._read(file)

    # ------------------------------------------------------------ files

    def _find(self, again: bool = False) -> None:
        for path in self._tree.new_files(again):
            rank = self._writer(path)
            if rank is None:
                continue
            if path.name.endswith(".wandb"):
                from allranks.agent.trackers.wandb_files import WandbFile  # lazy: few jobs use it

                self._files.append(_File(path, "wandb", rank, WandbFile(path)))
            elif path.name.endswith(".db"):
                from allranks.agent.trackers.trackio_files import TrackioFile  # lazy: as above

                reader = TrackioFile(path, self._began)
                self._files.append(_File(path, "trackio", rank, reader))
            else:
                from allranks.agent.trackers.tensorboard_files import EventFile  # lazy: as above

                self._files.append(_File(path, "tensorboard", rank, EventFile(path)))

    def _writer(self, path: Path) -> int | None:
        """The rank that writes the file: that has it open, or whose process is in its name; else
        the node's first. None if it is another program's in a folder that the job shares."""
        if len(self._ranks) > 1 or self._task.in_place:
            for pid, rank in list(self._pids.items()):
                if path.name in _open_files(pid):
                    return rank
            pids = [int(part) for part in path.name.split(".") if part.isdecimal()]
            for pid in pids:
                if pid in self._pids:
                    return self._pids[pid]
            if self._task.in_place and any(path.name in _open_files(pid) for pid in pids):
                return None
        return self._ranks[0]

    def _read(self, file: _File, until: float | None = None) -> None:
        with contextlib.suppress(OSError):  # it was removed, or the disk is full
            for part in self._parts(file, until is not None):
                self._write(file, part)
                if until is None and self._over.is_set():
                    return
                if until is not None and time.monotonic() > until:
                    file.reader.damage = f"not all was read in {_REST:g} s"
                    return

    @staticmethod
    def _parts(file: _File, is_last: bool) -> Iterator[Found]:
        yield from file.reader.read()
        if is_last and file.kind == "wandb":
            from allranks.agent.trackers.wandb_files import WandbFile  # lazy: as above

            assert isinstance(file.reader, WandbFile)
            yield file.reader.rest()

    # ------------------------------------------------------------ the record

    def _write(self, file: _File, part: Found) -> None:
        if not (part.points or part.parameters or part.images):
            return
        kind, rank = file.kind, file.rank
        if kind == "tensorboard":
            prefix = self._prefixes.of_folder(rank, file.path.parent)
        else:
            run = str(file.path) if kind == "wandb" else part.run
            prefix = self._prefixes.of_run(kind, rank, run, part.run)
        number = rank if world(self._task) > 1 else None
        if number == 0 and self._task.metrics:
            number = None  # what is printed under the same name has a series of its own
        rows = [
            [self._prefixes.metric(kind, rank, prefix + name), number, step, at, value]
            for name, step, at, value in part.points
        ]
        lines: list[dict[str, Any]] = [
            {"points": rows[i : i + _LINE]} for i in range(0, len(rows), _LINE)
        ]
        if new := self._new_parameters(prefix, part.parameters):
            lines.append({"parameters": new})
        with self._into.open("ab") as target:
            for line in lines:
                target.write(json.dumps(line).encode() + b"\n")
        for image in part.images:
            self._keep(image._replace(name=prefix + image.name), number)

    def _new_parameters(self, prefix: str, values: Mapping[str, str]) -> dict[str, str]:
        named = {prefix + name: text for name, text in values.items()}
        new = {name: text for name, text in named.items() if self._parameters.get(name) != text}
        room = _PARAMETERS - len(self._parameters)
        new = dict(list(new.items())[: max(0, room)])
        self._parameters |= new
        return new

    def _keep(self, image: Image, rank: int | None) -> None:
        if image.source is None:
            self._left_out["each is larger than 10 MB; they are in the tracker's own files"] += 1
            return
        path = image_path(image.name, image.step, rank, image.suffix)
        number = self._images[path]
        self._images[path] += 1
        stem, suffix = os.path.splitext(path)
        source = image.source
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        if sum(self._images.values()) > _IMAGES or self._image_bytes + size > _BYTES:
            self._left_out["there are too many"] += 1
            return
        self._image_bytes += size
        target = Path(self._task.record, IMAGES, f"{stem}_{number}{suffix}" if number else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{os.getpid()}.part")
        if isinstance(source, bytes):
            part.write_bytes(source)
        else:
            shutil.copyfile(source, part)
        part.replace(target)


def _open_files(pid: int) -> set[str]:
    """The names of the files that a process has open."""
    names = set[str]()
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                names.add(os.path.basename(os.readlink(f"/proc/{pid}/fd/{entry}")))
    return names
