"""Take the working set from the folder of an agent that ended on this disk: nothing is copied."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from allranks import folder_trees
from allranks.agent.lifecycle.other_nodes_files import remove_copies
from allranks.agent.state.working_folder import read_changes
from allranks.core.data.working_set import ABOUT, CHANGES, FILES, About, folders_above, is_carried
from allranks.store.files.code_listing import CodeFile


def take(source: Path, target: Path, code: Mapping[str, CodeFile]) -> None:
    """Move what differs from the code to ``target``, a folder of the job's record, into which the
    job may write. Raises OSError only if that cannot be said, or if there is a link in its way."""
    trouble, removed = "", tuple[str, ...]()
    jobs, below = os.path.realpath(target.parents[2]), target.parts[-3:]
    if os.path.realpath(target) != os.path.join(jobs, *below):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    folders = folders_above(code)
    try:
        same, gone = remove_copies(source.parent)  # of other nodes' files
        _take_changes(source.parent, target, same)
        mine = {path: file for path, file in code.items() if path not in same}
        removed = _removed(source, mine, folders - folders_above(same), gone)
        for path in _changed(source, code, folders):
            _move(source, target / FILES, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        where = os.fsencode(error.filename or source).decode(errors="replace")
        trouble = f"what its ranks wrote cannot be taken along: {reason}: {where}"
    about = About(removed, str(source), trouble=trouble)
    if not (removed or trouble or (target / FILES).exists()):
        # No rank has changed anything.
        folder_trees.remove(target)
        return
    with folder_trees.replace_file(target / ABOUT, below=target) as file:
        file.write(about.dump())


def _take_changes(part: Path, target: Path, same: Collection[str]) -> None:
    """Take what is known of earlier attempts' changes, without those that other nodes' replaced:
    the agent may have been killed while it brought them. Raises OSError."""
    try:
        changes = read_changes(part)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(part / CHANGES)) from None
    if changes.attempt or changes.paths:
        with folder_trees.replace_file(target / CHANGES, below=target) as file:
            file.write(changes.without(same).dump())


def _removed(
    source: Path, code: Mapping[str, CodeFile], folders: set[str], more: Iterable[str]
) -> tuple[str, ...]:
    gone = {path for path in code if is_carried(path) and not os.path.lexists(source / path)}
    gone |= {f"{path}/" for path in folders if not os.path.lexists(source / path)}
    return tuple(sorted(gone.union(more)))


def _changed(source: Path, code: Mapping[str, CodeFile], folders: set[str]) -> Iterator[str]:
    """The files and folders that are not of the code; folders that have none of it as a whole."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(source / folder) as entries:
            for entry in [*entries]:
                path = folder + entry.name
                if not is_carried(path):
                    continue
                status = entry.stat(follow_symlinks=False)
                code_file = code.get(path)
                if stat.S_ISDIR(status.st_mode) and path in folders:
                    waiting.append(f"{path}/")
                elif code_file is not None and code_file.is_unchanged(entry.path, status):
                    continue
                elif stat.S_IFMT(status.st_mode) in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK):
                    yield path


def _move(source: Path, target: Path, path: str) -> None:
    try:
        os.rename(source / path, target / path)
    except FileNotFoundError:  # the folder above
        (target / path).parent.mkdir(parents=True)
        _move(source, target, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # a killed server was moving it
            for name in os.listdir(source / path):
                _move(source, target, f"{path}/{name}")
        elif error.errno == errno.EACCES:  # a folder that its owner may not write
            for place in (source / path, (source / path).parent):
                if stat.S_ISDIR(place.lstat().st_mode):
                    place.chmod(0o700)
            os.rename(source / path, target / path)
        elif error.errno == errno.EXDEV:
            shutil.move(source / path, target / path)
        else:
            raise
