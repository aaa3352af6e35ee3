"""The files of a folder that git does not ignore, as git says, or by its rules where it cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from allranks.snapshot.git import repository_of, start
from allranks.snapshot.ignore import IgnoreRules, patterns_in

# Reading a repository of another user is safe: listing files runs nothing that it configures.
_LIST = ("-c", "safe.directory=*", "ls-files", "-z", "-t", "-s")
_WHICH = ("--cached", "--others", "--exclude-standard")
_REPOSITORY = b"160000 "


def files_of_git(folder: Path) -> Iterator[tuple[str, bool]]:
    """The files of a folder that git does not ignore, and whether it tracks them; none where git
    cannot say. The name of a repository inside ends with `/`."""
    if repository_of(folder.resolve()) is None:
        return
    try:
        with start(folder, *_LIST, *_WHICH) as process:
            output, _ = process.communicate()
    except OSError:
        return  # git is missing or cannot be run
    if process.returncode != 0:
        return
    for line in output.split(b"\0")[:-1]:
        is_tracked, rest = line[:1] != b"?", line[2:]
        # MODE OBJECT STAGE, a tab, and the name.
        name = rest.partition(b"\t")[2] if is_tracked else rest
        is_submodule = is_tracked and rest.startswith(_REPOSITORY)
        yield os.fsdecode(name + b"/" if is_submodule else name), is_tracked


def rules_without_git(folder: Path) -> Callable[[str], bool]:
    """Tells which paths of a folder git would ignore by the files in its repository, if none of
    them is tracked. A folder that is ignored itself has its own rules alone."""
    folder = folder.resolve()
    top = repository_of(folder) or folder
    rules = IgnoreRules(top, patterns_in(top / ".git" / "info" / "exclude"))
    within = "" if folder == top else f"{folder.relative_to(top)}/"
    if within and rules(within):
        return IgnoreRules(folder)
    return lambda path: rules(within + path)
