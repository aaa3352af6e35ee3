"""What holds of each try, whatever its kind."""

from __future__ import annotations

import os
import random
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from allranks.errors import AllranksError

SEED = "allranks 20261128"
# Seconds of processor time that a try may take.
CPU = 5.0


@dataclass(frozen=True)
class Outcome:
    """``sent``: the files, by their path in the goal, that the peer sent whole and that were asked
    for. ``said``: what the user reads, messages of errors among it."""

    sent: Mapping[str, bytes] = field(default_factory=dict)
    said: str = ""


class Kind(Protocol):
    TRIES: int

    def attempt(self, chance: random.Random, place: Place) -> Outcome: ...


class Place:
    """A folder with the ``goal`` of a try, and beside it a ``secret`` that nobody may touch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.goal = root / "goal"
        self.outside = root / "outside"
        for folder in (self.goal, self.outside / ".ssh"):
            folder.mkdir(parents=True)
        (self.outside / "secret").write_bytes(b"secret")
        (self.outside / ".ssh" / "authorized_keys").write_bytes(b"mine")
        (root / "beside").write_bytes(b"beside")

    def surroundings(self) -> dict[str, object]:
        """All that is not in the goal."""
        seen: dict[str, object] = {}
        for folder, folders, files in os.walk(self.root):
            if folder == str(self.root):
                folders.remove("goal")
            for name in (*folders, *files):
                path = Path(folder, name)
                status = path.lstat()
                content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
                about = (status.st_mode, status.st_uid, status.st_nlink, content)
                seen[str(path.relative_to(self.root))] = about
        return seen

    def links_outside(self) -> list[str]:
        """Links of the goal that lead out of it."""
        goal = os.path.realpath(self.goal)
        links = (path for path in self._below_goal() if path.is_symlink())
        return [str(path) for path in links if not os.path.realpath(path).startswith(f"{goal}/")]

    def odd_files(self) -> list[str]:
        """What is neither a file, a folder nor a link, and what has a set-uid or set-gid bit."""
        odd = []
        for path in self._below_goal():
            mode = path.lstat().st_mode
            plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
            if not plain or mode & (stat.S_ISUID | stat.S_ISGID):
                odd.append(str(path))
        return odd

    def _below_goal(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self.goal):
            yield from (Path(folder, name) for name in (*folders, *files))


class TooLong(BaseException):
    """A try takes too much processor time."""


@contextmanager
def limited() -> Iterator[None]:
    """Raises TooLong after ``CPU`` seconds of processor time, also where Python code loops."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, CPU)
    begin = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if time.process_time() - begin > CPU:
        raise TooLong


def said_by(call: Callable[[], object]) -> str:
    """What a call that raises an AllranksError says; empty if it does not."""
    try:
        call()
    except AllranksError as error:
        return f"{error}\n{error.hint or ''}"
    return ""


def check(kind: Kind, name: str, number: int, root: Path) -> None:
    """Make a try and assert what holds of all."""
    place = Place(root)
    before = place.surroundings()
    with limited():
        outcome = kind.attempt(random.Random(f"{SEED} {name} {number}"), place)
    assert place.surroundings() == before
    assert place.links_outside() == []
    assert place.odd_files() == []
    lost = [path for path, content in outcome.sent.items() if not _has(place.goal / path, content)]
    assert not lost or outcome.said, f"lost without a word: {lost}"
    odd = {char for char in outcome.said if not char.isprintable() and char not in "\n\t"}
    assert not odd, f"control characters: {odd} in {outcome.said[:500]!r}"


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == content
