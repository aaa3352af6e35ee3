"""The files of a folder that git does not ignore, as git says, or by its rules where it cannot."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from allranks.snapshot.git import repository_of, start
from allranks.snapshot.ignore import IgnoreRules, RuleFile, rule_file

# Reading a repository of another user is safe: listing files runs nothing that it configures.
_LIST = ("-c", "safe.directory=*", "ls-files", "-z", "-t", "-s")
_WHICH = ("--cached", "--others", "--exclude-standard")
_REPOSITORY = b"160000 "
_EXCLUDES_FILE = rb"(?im)^\s*excludesfile\s*=\s*\"?([^\"\n]+)"


class GitFile(NamedTuple):
    """A file that git does not ignore, or a repository inside of another."""

    name: str
    is_tracked: bool
    is_repository: bool


def files_of_git(folder: Path) -> Iterator[GitFile]:
    """The files of a folder that git does not ignore; none where git cannot say."""
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
        is_repository = rest.startswith(_REPOSITORY) if is_tracked else name.endswith(b"/")
        yield GitFile(os.fsdecode(name.rstrip(b"/")), is_tracked, is_repository)


def rules_without_git(folder: Path) -> Callable[[str], bool]:
    """Tells which paths of a folder git would ignore, if none of them is tracked. A folder that is
    ignored itself has its own rules alone."""
    folder = folder.resolve()
    top = repository_of(folder)
    if top is None:
        return IgnoreRules(folder)
    rules = IgnoreRules(top, [*_of_user(), *rule_file(_info(top / ".git") / "exclude")])
    within = "" if folder == top else f"{folder.relative_to(top)}/"
    if rules(within):
        return IgnoreRules(folder)
    return lambda path: rules(within + path)


def _info(git: Path) -> Path:
    """The folder `info` of a repository, also of a worktree's."""
    if git.is_dir():
        return git / "info"
    own = git.parent / git.read_text(errors="surrogateescape").partition(":")[2].strip()
    common = own / "commondir"
    return (own / common.read_text().strip() if common.is_file() else own) / "info"


def _of_user() -> Iterator[RuleFile]:
    """The rules that a user has for all repositories."""
    home = Path.home()
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "git")
    path = settings / "ignore"
    for file in (settings / "config", home / ".gitconfig"):
        if file.is_file() and (match := re.search(_EXCLUDES_FILE, file.read_bytes())):
            path = Path(os.fsdecode(match[1].strip())).expanduser()
    yield from rule_file(path)
