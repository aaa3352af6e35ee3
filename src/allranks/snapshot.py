"""The user's code as it is now, as one tar named by its hash; uncommitted changes included.

`.amlignore` says what to leave out, else `.gitignore`, both with git's own patterns. The job's own
`outputs/` and `logs/`, `.git`, caches and virtual environments are never taken along.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from allranks.errors import NotFound, UsageError

LARGE = 300 << 20
# A tar up to this size is made in memory, a larger one on disk.
_IN_MEMORY = 64 << 20
_NEVER = frozenset({".git", "__pycache__", ".ipynb_checkpoints"})
_THE_JOBS_OWN = frozenset({"outputs", "logs"})


class Snapshot(NamedTuple):
    """``file`` holds the tar; ``notes`` are sentences a person should read."""

    digest: str
    file: BinaryIO
    files: int
    size: int
    notes: tuple[str, ...] = ()


class _Entry(NamedTuple):
    path: str
    name: str
    size: int
    mtime: int


def take(code: Path, note: Callable[[str], None] = lambda sentence: None) -> Snapshot:
    """Snapshot a folder or a single file; ``note`` hears at once what a person should know.

    Raises NotFound or UsageError with the path.
    """
    try:
        return _take(code, note)
    except OSError as error:
        raise UsageError(
            f"the code cannot be read: {(error.strerror or str(error)).lower()}",
            where=str(error.filename or code),
            hint="name the folder of your script: --code DIR; or leave it out in .amlignore",
        ) from error


def _take(code: Path, note: Callable[[str], None]) -> Snapshot:
    if not code.exists():
        raise NotFound(
            "there is no such file or folder", where=str(code), hint="see --code / code:"
        )
    if code.resolve() == Path("/"):
        raise UsageError(
            "the code folder is the root of the file system",
            where=str(code),
            hint="go to the folder of your script, or name it: --code DIR",
        )
    notes: list[str] = []
    if code.is_file():
        found = [_entry(str(code), code.name)]
    else:
        found = sorted(_walk(code, notes), key=lambda entry: entry.name)
    size = sum(entry.size for entry in found)
    if size > LARGE:
        notes.append(_too_large(code, size, found))
    for sentence in notes:
        note(sentence)
    file = _tar(found, size)
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    file.seek(0)
    return Snapshot(digest.hexdigest(), file, len(found), size, tuple(notes))


def _tar(found: list[_Entry], size: int) -> BinaryIO:
    file: BinaryIO = io.BytesIO()
    if size > _IN_MEMORY:
        import tempfile  # lazy: 15 ms, and few snapshots are so large

        file = tempfile.TemporaryFile()  # noqa: SIM115 (handed on)
    # Owners and other bits than "executable" would make the same code a different snapshot.
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in found:
            info = archive.gettarinfo(entry.path, entry.name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = entry.mtime
            info.mode = 0o755 if info.mode & 0o100 else 0o644
            if info.isreg():
                with open(entry.path, "rb") as content:
                    info.size = os.fstat(content.fileno()).st_size
                    archive.addfile(info, content)
            else:
                archive.addfile(info)
    file.seek(0)
    return file


def _walk(root: Path, notes: list[str]) -> Iterator[_Entry]:
    ignored = _ignored(root)
    for folder, folders, files in os.walk(root):
        here = os.path.relpath(folder, root)
        here = "" if here == "." else here + "/"
        kept = []
        for name in sorted(folders):
            path = os.path.join(folder, name)
            if _leave_out(name, here, path, notes) or ignored(f"{here}{name}/"):
                continue
            if os.path.islink(path):
                files.append(name)
            else:
                kept.append(name)
        folders[:] = kept
        for name in files:
            path = os.path.join(folder, name)
            if not here and name in _THE_JOBS_OWN:
                notes.append(f"left out of the code: {name} (the job has a folder of that name)")
            elif not ignored(here + name) and _can_be_taken(root, path, here + name, notes):
                yield _entry(path, here + name)


def _leave_out(name: str, here: str, path: str, notes: list[str]) -> bool:
    if name in _NEVER:
        return True
    if not here and name in _THE_JOBS_OWN:
        if os.listdir(path):
            notes.append(f"left out of the code: {name}/ (the job gets an empty one of its own)")
        return True
    if all(os.path.exists(os.path.join(path, each)) for each in ("token", "server.lock")):
        notes.append(f"left out of the code: {here}{name}/ (a home of allranks)")
        return True
    if os.path.exists(os.path.join(path, "pyvenv.cfg")):
        notes.append(f"left out of the code: {here}{name}/ (a virtual environment cannot be moved)")
        return True
    return False


def _can_be_taken(root: Path, path: str, name: str, notes: list[str]) -> bool:
    kind = os.lstat(path).st_mode
    if stat.S_ISLNK(kind):
        goal = os.readlink(path)
        # As it reads, not where it ends: one that leaves and comes back is refused when unpacked.
        landing = os.path.normpath(os.path.join(os.path.dirname(name), goal))
        if not os.path.isabs(goal) and landing.split("/")[0] != "..":
            return True
        notes.append(f"left out of the code: {name} (a link that leads out of the folder)")
        return False
    if not stat.S_ISREG(kind):
        notes.append(f"left out of the code: {name} (neither a file nor a folder)")
        return False
    if not os.access(path, os.R_OK):
        raise UsageError(
            "a file of the code cannot be read",
            where=path,
            hint="make it readable, or leave it out by a line in .amlignore",
        )
    return True


def _entry(path: str, name: str) -> _Entry:
    found = os.lstat(path)
    return _Entry(path, name, found.st_size, int(found.st_mtime))


def _ignored(root: Path) -> Callable[[str], bool]:
    for name in (".amlignore", ".gitignore"):
        file = root / name
        if file.is_file():
            import pathspec  # lazy: 90 ms, only where there is something to ignore

            lines = file.read_text(errors="surrogateescape").splitlines()
            return pathspec.GitIgnoreSpec.from_lines(lines).match_file
    return lambda path: False


def _too_large(root: Path, size: int, found: list[_Entry]) -> str:
    largest = sorted(found, key=lambda entry: -entry.size)[:10]
    largest = [entry for entry in largest if entry.size >> 20]
    lines = "".join(f"\n  {entry.size >> 20:6} MB  {entry.name}" for entry in largest)
    return (
        f"the code in {root} has {size >> 20} MB and travels with every job; "
        f"leave out data by lines in .amlignore. The largest files:{lines}"
    )
