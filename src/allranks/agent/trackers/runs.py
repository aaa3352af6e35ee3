"""Runs that were logged elsewhere, read from a folder of W&B, TensorBoard and Trackio files."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.agent.trackers.kept_images import KeptImages
from allranks.agent.trackers.names import Prefixes
from allranks.agent.trackers.readings import BadRows, Reader, Reading, lines
from allranks.agent.trackers.tensorboard_files import EventFile
from allranks.agent.trackers.trackio_files import TrackioFile, run_names
from allranks.agent.trackers.wandb_files import CUT_OFF, WandbFile

_EMPTY = "it is empty, or its first record is cut off or damaged"

# Characters of a name's readable part.
_LONG = 80


class Files(NamedTuple):
    """The files of a run, its parts in order. ``name`` is for a job, the same each time; ``run`` is
    the one of a database with several."""

    name: str
    source: Path
    paths: Sequence[Path]
    run: str = ""


class Run(NamedTuple):
    """A run that has ended, or a part of it. ``lines``: its points, each in one as in
    ALLRANKS_METRICS_FILE: if the run goes on, more follow; ``last``: those of its summary only.
    ``damage``: what is wrong with its files. ``exit_code`` is None if they do not tell; ``is_cut``:
    they should. ``has_images``: see ``keep_images``."""

    title: str
    project: str
    began: float
    ended: float
    exit_code: int | None
    is_cut: bool
    parameters: dict[str, str]
    lines: list[bytes]
    last: list[bytes]
    damage: str
    has_images: bool = False


def find(root: Path) -> list[Files]:
    """The runs below a folder. Event files of one folder are one run, with those of its
    subfolders; W&B's folders with one id are the parts of one run; Trackio's are named."""
    wandb: dict[tuple[str, int], list[Path]] = {}
    copies = Counter[tuple[str, str]]()
    boards = list[Files]()
    folders: dict[Path, list[Path]] = {}
    for path in map(Path, folder_trees.files(root)):
        if path.suffix == ".wandb":
            run, part = path.stem.removeprefix("run-"), path.parent.name
            # A copy has the same folder, which is named after the time.
            wandb.setdefault((run, copies[run, part]), []).append(path)
            copies[run, part] += 1
        elif "tfevents" in path.name:
            above = next((e for e in reversed(path.parents) if e in folders), path.parent)
            folders.setdefault(above, []).append(path)
        elif path.suffix == ".db" and path.with_suffix(".lock").exists():
            for run in run_names(path):
                name = _name(f"trackio-{path.stem}-{run}", _digest(path, run))
                boards.append(Files(name, path, [path], run))
    for folder in sorted(folders):
        relative = str(folder.relative_to(root)) if folder != root else folder.resolve().name
        boards.append(Files(_name(relative, _digest(folder)), folder, sorted(folders[folder])))
    several = []
    for (run, _), paths in wandb.items():
        paths.sort(key=lambda path: path.parent.name.removeprefix("offline-"))
        several.append(Files(_name("wandb", run), paths[0], paths))
    return [*sorted(several), *boards]


def parts(files: Files) -> Iterator[tuple[Files, Run]]:
    """The parts of a run of W&B that was resumed, in order; of others, the run."""
    if files.source.suffix != ".wandb":
        yield files, _read(files)
        return
    for path in files.paths:
        part = files._replace(source=path, paths=[path])
        yield part, _read(part)


def keep_images(files: Files, kept: KeptImages) -> Iterator[tuple[str, bytes]]:
    """The paths and contents of the images of a part. It is read again: all of them at once may
    not fit in memory."""
    images = list[tuple[str, bytes]]()

    def put(path: str, image: bytes) -> None:
        images.append((path, image))

    for path, reader, prefix in _readers(files):
        with contextlib.suppress(OSError):  # what was wrong with it is told
            for image in (image for part in reader.read() for image in part.images):
                named = image._replace(name=prefix + image.name)
                kept.keep(named, None, path.resolve().parent, put)
                yield from images
                images.clear()


def _readers(files: Files) -> Iterator[tuple[Path, Reader, str]]:
    """Each file, its reader, and what stands before its names."""
    prefixes = Prefixes()
    prefixes.of_folder(0, files.source)
    tags: dict[Path, set[str]] = {}
    for path in files.paths:
        if path.suffix == ".wandb":
            yield path, WandbFile(path.resolve()), ""
        elif path.suffix == ".db":
            yield path, TrackioFile(path.resolve(), run=files.run), ""
        else:
            reader = EventFile(path.resolve(), tags=tags.setdefault(path.parent, set()))
            yield path, reader, prefixes.of_folder(0, path.parent)


def _read(files: Files) -> Run:
    """Files that cannot be read are ``damage``."""
    points, last = list[bytes](), list[bytes]()
    several = list[Sequence[Any]]()
    values: dict[str, str] = {}
    times = list[float]()
    damage, has_images = "", False
    wandb: WandbFile | None = None
    for path, reader, prefix in _readers(files):
        wandb = reader if isinstance(reader, WandbFile) else None
        try:
            for is_last, part in _read_twice(reader):
                has_images = has_images or bool(part.images)
                times += [point.at for point in part.points if point.at > 0]
                values |= {prefix + name: value for name, value in part.parameters.items()}
                rows = [(prefix + name, None, step, at, v) for name, step, at, v in part.points]
                if len(files.paths) > 1:
                    several += rows
                else:
                    (last if is_last else points).extend(lines(rows, reader.bad, 1))
            wrong = reader.damage or reader.bad.message()
            if isinstance(reader, EventFile) and not reader.offset:
                wrong = _EMPTY
        except OSError as error:
            wrong = (error.strerror or str(error)).lower()
        if wrong and not damage:
            damage = f"{path.name}: {wrong}" if path.parent == files.source else wrong
    # What is logged later to one of several files follows what all have now.
    several.sort(key=itemgetter(3))
    points += lines(several, BadRows(), 1)
    source = files.source if files.source.exists() else files.source.parent  # a broken link
    at = source.stat().st_mtime
    began, ended = min(times, default=at), max(times, default=at)
    title, project, code = files.source.name, files.source.parent.name, None
    if files.run:
        title, project = files.run, files.source.stem
    if wandb is not None:
        title, project = wandb.run or title, wandb.project or "wandb"
        began, code = wandb.began or began, wandb.exit_code
        if wandb.began is None:
            damage = damage or _EMPTY
    is_cut = wandb is not None and code is None
    if is_cut and damage.startswith(CUT_OFF):
        damage = ""  # it is no more than that
    return Run(
        title=title,
        project=project,
        began=began,
        ended=max(began, ended),
        exit_code=code,
        is_cut=is_cut,
        parameters=values,
        lines=points,
        last=last,
        damage=damage,
        has_images=has_images,
    )


def _read_twice(reader: Reader) -> Iterator[tuple[bool, Reading]]:
    """Each part, and whether it counts only when the run is over."""
    for is_last in (False, True):
        for part in reader.read(is_last=is_last):
            yield is_last, part


def _digest(path: Path, run: str = "") -> str:
    return hashlib.sha256(f"{path.resolve()}{run}".encode(errors="replace")).hexdigest()[:8]


def _name(text: str, end: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[-_LONG:].strip("-")
    return f"{plain or 'run'}-{re.sub(r'[^A-Za-z0-9_-]', '-', end)}"
