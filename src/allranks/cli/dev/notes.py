"""What this machine remembers of a session: its folder here, and what its files held when they were
sent or came back last."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks import settings
from allranks.agent.inside.allranks_dev_files import digest
from allranks.errors import UsageError
from allranks.snapshot.files import walk


class Note(NamedTuple):
    """``folder``: the code's, absolute. ``in_place``: the session runs in it. ``sent``: what each
    file held, by name."""

    folder: str
    in_place: bool
    sent: Mapping[str, str]


def note_of(folder: Path, *, in_place: bool) -> Note:
    """A note on a folder that is sent now. Raises UsageError."""
    if not folder.exists():
        raise UsageError("no such folder", where=str(folder), hint="set the folder: --code DIR")
    sent = {} if in_place else {file.name: digest(file.path) for file in walk(folder, [])}
    base = folder if folder.is_dir() else folder.parent
    return Note(str(base.resolve()), in_place, sent)


def write(name: str, note: Note) -> None:
    """Raises UsageError."""
    path = _path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = path.with_suffix(f".{os.getpid()}")
        made.write_text(json.dumps(note._asdict()))
        made.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot be written: {reason}", where=str(path)) from None


def read(name: str) -> Note | None:
    try:
        return Note(**json.loads(_path(name).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def restore(name: str, before: Note | None) -> None:
    """The note is as it was ``before``: nothing was sent."""
    if before is None:
        _path(name).unlink(missing_ok=True)
    else:
        write(name, before)


def _path(name: str) -> Path:
    return settings.home().root / "dev" / f"{name}.json"
