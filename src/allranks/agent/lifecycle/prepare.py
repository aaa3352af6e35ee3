"""Preparing a node for an attempt: a fresh working folder with the code, inputs, outputs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.agent.lifecycle.collect_files import Listing, listing
from allranks.errors import AllranksError, NotFound
from allranks.plan.plan import InputTask, OutputTask, Task

# These two folders of the working folder are the job's, wherever they really lie.
COLLECTED = ("outputs", "logs")


class Work(NamedTuple):
    """A prepared working folder with the ``laid_out`` files, and a value for each ``inputs.x``,
    ``outputs.y`` and ``name``."""

    folder: Path
    paths: dict[str, str]
    began: float
    laid_out: Listing


def prepare(
    task: Task,
    folder: Path,
    code: Path | None,
    began: float,
    elsewhere: Mapping[str, str],
) -> Work:
    """Make the attempt's ``folder`` ready; ``code`` is the snapshot's tar, ``elsewhere`` where
    inputs and outputs of other places are here, as `inputs.NAME` and `outputs.NAME`, and the state,
    as `state_dir` and `instance_state_dir`.

    Raises AllranksError or OSError with what is missing.
    """
    work = Path(task.in_place) if task.in_place else folder / "work"
    if task.in_place and not work.is_dir():
        raise NotFound("this node does not have the folder", where=task.in_place)
    work.mkdir(exist_ok=True)
    if code is not None:
        _unpack(code, work)
    _collected(task, work)
    paths = {"name": task.job, **_folders(task), **elsewhere}
    for each in task.inputs:
        key = f"inputs.{each.name}"
        paths[key] = elsewhere.get(key) or _input(each, folder)
    for output in task.outputs:
        key = f"outputs.{output.name}"
        paths[key] = elsewhere.get(key) or _output(output)
    return Work(work, paths, began, {} if task.in_place else listing(work))


def collect(task: Task, work: Work) -> None:
    """Take what an in-place job wrote to ``./outputs`` and ``./logs`` into its record."""
    if not task.in_place:
        return  # they are links into the record
    for name in COLLECTED:
        for path in (work.folder / name).rglob("*"):
            if path.is_file() and path.stat().st_mtime >= work.began:
                goal = Path(task.record, "artifacts", name, path.relative_to(work.folder / name))
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, goal)


def _unpack(code: Path, work: Path) -> None:
    """By the node's own tar where it can read what we write: of thousands of files it is three
    times as fast as Python's."""
    tar = shutil.which("tar")
    env = {"LC_ALL": "C", "PATH": os.environ.get("PATH", "")}
    if tar is None or not _reads_ours(tar, env):
        _unpack_here(code, work)
        return
    # As whoever we are: whose the files were is no business of a node's.
    words = [tar, "--extract", "--no-same-owner", f"--file={code}", f"--directory={work}"]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise AllranksError(
            f"the code cannot be unpacked: {said[0] if said else 'tar failed'}",
            hint="leave that out, or make room on the node",
        )


def _reads_ours(tar: str, env: dict[str, str]) -> bool:
    """Small ones know nothing of long names and of names that are not ASCII."""
    done = subprocess.run([tar, "--version"], env=env, capture_output=True)
    return b"GNU tar" in done.stdout or b"bsdtar" in done.stdout


def _unpack_here(code: Path, work: Path) -> None:
    import tarfile  # lazy: 10 ms, and few nodes have no tar

    # Before 3.11.4, as Debian 12 has it, there is none; the code is the user's own.
    filter: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(code) as archive:
            archive.extractall(work, **filter)
    except tarfile.TarError as error:
        raise AllranksError(
            f"the code cannot be unpacked: {error}", hint="leave that out"
        ) from error


def _collected(task: Task, work: Path) -> None:
    for name in COLLECTED:
        kept, here = Path(task.record, "artifacts", name), work / name
        try:
            kept.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AllranksError(
                f"the job's record cannot be written from this node: {error.strerror}",
                where=str(kept),
                hint="node and server have to share that folder in this version",
            ) from error
        if task.in_place:
            here.mkdir(exist_ok=True)
        else:
            here.symlink_to(kept)


def _folders(task: Task) -> dict[str, str]:
    """Places that scripts know by SageMaker's variables."""
    record = Path(task.record)
    found = {
        "model_dir": record / "artifacts" / "model",
        "data_dir": record / "artifacts" / "data",
        "tensorboard_dir": record / "artifacts" / "tensorboard",
    }
    for path in found.values():
        path.mkdir(parents=True, exist_ok=True)
    return {name: str(path) for name, path in found.items()}


def _input(each: InputTask, folder: Path) -> str:
    if each.text is not None:
        return each.text
    if each.uri:
        return each.uri
    source = Path(each.source or "")
    if not os.access(source, os.R_OK):
        said = "is not there" if not source.exists() else "cannot be read"
        raise NotFound(f"the input {each.name} {said} on this node", where=str(source))
    if each.mode != "download":
        return str(source)
    copy = folder / "inputs" / each.name / source.name
    if source.is_dir():
        try:
            shutil.copytree(source, copy)
        except shutil.Error as error:
            path, _, why = error.args[0][0]
            raise AllranksError(
                f"{len(error.args[0])} files of the input {each.name} cannot be copied: {why}",
                where=str(path),
                hint="a `download` is of plain files; `ro_mount` leaves the folder as it is",
            ) from None
    else:
        copy.parent.mkdir(parents=True)
        shutil.copy2(source, copy)
    return str(copy)


def _output(output: OutputTask) -> str:
    if output.uri:
        return output.uri
    path = Path(output.path)
    (path.parent if output.is_file else path).mkdir(parents=True, exist_ok=True)
    return output.path
