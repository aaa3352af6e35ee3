"""Prepare a node for an attempt: its working folder with code, inputs and outputs."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks import folder_trees
from allranks.agent.lifecycle import unsaved
from allranks.agent.lifecycle.parts import Part, Run, Work
from allranks.agent.processes.guests import host_record
from allranks.agent.supervision.attempt import sentence
from allranks.core.data.working_set import COLLECTED
from allranks.core.job import code_packages
from allranks.core.plan import InputTask, OutputTask, Task
from allranks.errors import AllranksError, NotFound
from allranks.spec.shell.expressions import fill_shell

# In a job's record: when its first node began to collect outputs; and seconds by which the clocks
# of the record and of the folder may differ.
_COLLECTS, _SKEW = "collects", 1.0
# Bytes of an input that are copied at a time.
_PIECE = 8 << 20


class LaidOut(NamedTuple):
    """A working folder with the code; ``files`` lists those of the code. ``imports``: a file with
    the folders of the submitter's that have a copy here, if there are any."""

    folder: Path
    files: Mapping[str, tuple[int, int, int]] = {}
    imports: Path | None = None


def prepare(
    task: Task,
    folder: Path,
    laid_out: LaidOut,
    began: float,
    elsewhere: Mapping[str, str],
    go_on: Callable[[], None] = lambda: None,
) -> Work:
    """Prepare the attempt's ``folder`` and the working folder. ``elsewhere`` has the local paths of
    inputs and outputs in datastores, as `inputs.NAME` and `outputs.NAME`, and of the state, as
    `state_dir` and `instance_state_dir`. ``go_on`` is called between
    pieces of inputs, and raises what ends this.

    Raises AllranksError or OSError.
    """
    _make_collected(task, laid_out.folder)
    parameters = {f"search_space.{name}": text for name, text in task.parameters.items()}
    paths = {"name": task.job, **parameters, **_folders(task), **elsewhere}
    for item in task.inputs:
        key = f"inputs.{item.name}"
        paths[key] = elsewhere.get(key) or _input(item, folder, go_on)
    for output in task.outputs:
        key = f"outputs.{output.name}"
        paths[key] = elsewhere.get(key) or _output(output, task.record)
    return Work(laid_out.folder, paths, began, laid_out.files, laid_out.imports)


def command_of(task: Task, work: Work) -> str:
    """The command of the ranks, with the paths on this node."""
    paths = {f"inputs.{item.name}" for item in task.inputs if item.text is None}
    paths |= {f"outputs.{output.name}" for output in task.outputs}
    return fill_shell(task.command, work.paths, paths)


class Collected(Part):
    """Copies what an in-place job wrote to ``./outputs`` and ``./logs`` to its record. Where all
    nodes share them the first one does, and the others add what was written since it began."""

    def finish(self, run: Run) -> str:
        return collect(run.task, self._calls.where.node, run.work)

    def lost(self, run: Run, why: str) -> None:
        unsaved.fail(run, self._calls, f"{why}; they are still in {run.work.folder}")


def collect(task: Task, node: int, work: Work) -> str:
    """Return why some outputs could not be copied, or ''."""
    if not task.in_place:
        return ""  # they are links into the record
    left_out: list[str] = []
    try:
        if (since := _collected_since(task, node, work)) is None:
            return ""  # the first node will
        roots = _roots(task, work.folder)
        for name in COLLECTED:
            for path in _files_in_place(work.folder / name, roots):
                try:
                    _collect_file(task, path, work.folder, roots, since)
                except OSError as error:
                    left_out.append(sentence(error))
    except OSError as error:
        left_out.append(sentence(error))
    return f"some outputs could not be collected: {left_out[0]}" if left_out else ""


def _roots(task: Task, work: Path) -> list[str]:
    """Where links of the job may lead: with a container, which sees less than this process, into
    its folders only. Those of a session's working folder lead into its record."""
    if task.container is None and not task.inside:
        return ["/"]
    record = host_record(task)
    return [str(work), task.record, *([record] if record else [])]


def _files_in_place(folder: Path, roots: Sequence[str]) -> Iterator[Path]:
    """The files in a folder of the job's, and links to files. Raises OSError."""
    if folder_trees.resolved(folder, roots) is None:
        raise OSError(errno.EXDEV, "a link leads out of the job's folder", str(folder))
    return (path for path in map(Path, folder_trees.files(folder)) if path.is_file())


def _collect_file(task: Task, path: Path, work: Path, roots: Sequence[str], since: float) -> None:
    """Copy a file, unless it is older. A job in a container wrote the path and where links lead,
    here and in the record: none is followed out of its folders. Raises OSError."""
    target = Path(task.record, "artifacts", path.relative_to(work))
    with folder_trees.open_linked(path, roots) as source:
        status = os.fstat(source.fileno())
        if status.st_mtime < since:
            return
        with folder_trees.replace_file(target, task.record) as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fchmod(copy.fileno(), status.st_mode & 0o777)
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _collected_since(task: Task, node: int, work: Work) -> float | None:
    """When the files were written that this node collects; None if the first node, which has not
    begun yet, will find them all. Raises OSError."""
    if task.nodes == 1 or task.sends_files:
        return work.began
    begun = Path(task.record, _COLLECTS)
    if node == 0:
        folder_trees.make(begun.parent)
        begun.touch()
        return work.began
    return max(work.began, begun.stat().st_mtime - _SKEW) if begun.exists() else None


def unpack(code: Path, work: Path) -> None:
    """Unpack a job's code. Its links may lead anywhere, but nothing is written through them.
    Raises AllranksError or OSError."""
    from allranks.agent.archives.safe_extract import Extraction  # lazy: 10 ms, before the ranks'
    from allranks.tars import stream_entries

    name = Path("the job's code")
    extraction = Extraction(name, work, as_it_was=True)
    try:
        with code.open("rb") as file:
            for entry in stream_entries(name, file, seeks=True, has_end=False):
                extraction.put(entry)
    finally:
        extraction.close()


def set_packages_aside(work: Path, place: Path, packages: Path) -> Path | None:
    """Move the packages that came with the code from ``work``, which will be renamed to ``place``,
    to ``packages``. Return a file with where they, and other folders, are here."""
    imports = os.path.join(os.path.realpath(work), code_packages.LIST)
    if os.path.realpath(imports) != imports or not os.path.isfile(imports):
        return None  # there are none, or a link of that name, which may lead anywhere
    folder_trees.remove(packages, ignore_errors=True)
    (work / code_packages.FOLDER).rename(packages)
    file = packages / "imports"
    here = (
        code_packages.on_node(each, str(place), str(packages))
        for each in code_packages.unpacked(file.read_bytes())
    )
    file.write_bytes(code_packages.packed(here))
    return file


def _make_collected(task: Task, work: Path) -> None:
    for name in COLLECTED:
        within = f"artifacts/{name}"
        recorded, local = Path(task.record, within), work / name
        try:
            folder_trees.make(task.record)
            folder_trees.make_below(task.record, within)
        except OSError as error:
            raise AllranksError(
                f"cannot write the job's record from this node: {error.strerror}",
                where=str(recorded),
                hint="put ALLRANKS_HOME on a disk that the server shares with the nodes",
            ) from error
        if task.in_place:
            local.mkdir(exist_ok=True)
        elif not local.is_symlink() and (local.is_dir() or not local.exists()):
            if local.is_dir():
                _move_code(task, local, within)
            local.symlink_to(recorded)


def _move_code(task: Task, local: Path, within: str) -> None:
    """Move code that lies in ``local`` to the path ``within`` the record, to which the link in its
    place leads. Files that are there stay: another node put them there, or the ranks of an earlier
    attempt. Nothing goes through links of ranks, which may lead anywhere."""
    for folder, folders, names in folder_trees.walk(local):
        inside = os.path.normpath(os.path.join(within, os.path.relpath(folder, local)))
        try:
            above, _ = folder_trees.open_parent(task.record, f"{inside}/-", make=True)
        except NotADirectoryError:
            folders.clear()  # a link of ranks
            continue
        try:
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in (*names, *links):
                _put_beside(Path(folder, name), above)
        finally:
            os.close(above)
    folder_trees.remove(local)


def _put_beside(source: Path, above: int) -> None:
    """Copy a file or link into the open folder, unless something of that name is there."""
    part = f".{secrets.token_hex(8)}.part"
    with contextlib.suppress(FileNotFoundError):
        os.lstat(source.name, dir_fd=above)
        return
    try:
        shutil.copy2(source, f"/proc/self/fd/{above}/{part}", follow_symlinks=False)
        try:
            with contextlib.suppress(FileExistsError):  # another node was faster
                os.link(
                    part, source.name, src_dir_fd=above, dst_dir_fd=above, follow_symlinks=False
                )
        except OSError:  # a file system without links
            os.rename(part, source.name, src_dir_fd=above, dst_dir_fd=above)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=above)


def _folders(task: Task) -> dict[str, str]:
    """The folders that SageMaker's variables name."""
    folders = {}
    for name in ("model", "data", "tensorboard"):
        folder_trees.make_below(task.record, f"artifacts/{name}")
        folders[f"{name}_dir"] = str(Path(task.record, "artifacts", name))
    return folders


def _input(item: InputTask, folder: Path, go_on: Callable[[], None]) -> str:
    if item.text is not None:
        return item.text
    if item.uri:
        return item.uri
    source = Path(item.source or "")
    if not os.access(source, os.R_OK):
        problem = "cannot be read" if source.exists() else "was not found"
        hint = "put it on a disk that every node has mounted, or upload it: allranks data upload"
        message = f"the input {item.name} {problem} on this node"
        raise NotFound(message, where=str(source), hint=hint)
    if item.mode != "download":
        return str(source)
    copy = folder / "inputs" / item.name / source.name
    copy.parent.mkdir(parents=True)
    # Not those of agents, where the home is in the folder: the copy would have itself in it.
    agents = {os.path.realpath(path) for path in (folder, *[*folder.parents][:3])}
    try:
        for path in _files_of(source, copy, dict.fromkeys(agents)):
            _copy_file(path, copy / os.path.relpath(path, source), go_on)
    except OSError as error:
        raise AllranksError(
            f"cannot copy the input {item.name}: {error.strerror or error}",
            where=str(error.filename or source),
            hint="mode `download` copies regular files only; use `ro_mount` to read the folder "
            "where it is",
        ) from None
    return str(copy)


def _files_of(source: Path, copy: Path, copies: dict[str, Path | None]) -> Iterator[str]:
    """The files below the source, or it itself; makes the folders. ``copies`` has theirs by real
    paths: a link to one that has a copy leads there, for links may lead back, or to one another."""
    if not source.is_dir():
        yield str(source)
        return
    copies[os.path.realpath(source)] = copy
    for folder, folders, names in folder_trees.walk(source, onerror=_raise, followlinks=True):
        target = copy / os.path.relpath(folder, source)
        target.mkdir()
        real = {name: os.path.realpath(os.path.join(folder, name)) for name in folders}
        folders[:] = [name for name in folders if real[name] not in copies]
        for name in real.keys() - {*folders}:
            if (there := copies[real[name]]) is not None:
                (target / name).symlink_to(os.path.relpath(there, target))
        copies.update({real[name]: target / name for name in folders})
        yield from (os.path.join(folder, name) for name in names)


def _raise(error: OSError) -> None:
    raise error


def _copy_file(path: str, copy: Path, go_on: Callable[[], None]) -> None:
    """Raises OSError, and what ``go_on`` raises."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        with copy.open("xb", 0) as target:
            while piece := source.read(_PIECE):
                target.write(piece)
                go_on()
    shutil.copystat(path, copy)


def _output(output: OutputTask, record: str) -> str:
    if output.uri:
        return output.uri
    path = Path(output.path)
    folder = path.parent if output.is_file else path
    if folder.is_relative_to(record):
        folder_trees.make_below(record, str(folder.relative_to(record)))
    else:
        folder_trees.make(folder)
    return output.path
