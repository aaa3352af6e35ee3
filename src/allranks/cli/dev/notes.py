"""What this machine remembers of a session: its folder here, and what its files held when they were
sent or came back last.

A note is found by a mark that the session's job has, too: what is not submitted, or to another
server, changes no note of a session of the same name."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks import settings
from allranks.agent.inside.allranks_dev_files import digest
from allranks.api import routes
from allranks.core.job.sessions import PREFIX
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import find_server
from allranks.snapshot.files import walk

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.metrics import ShownJob

# The property of a session's job with the mark of its note.
PROPERTY = "allranks.dev_note"
# Seconds for which a note is kept after its last change.
_KEPT = 90 * 86400.0


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


def add(name: str, note: Note) -> str:
    """Write a new note and remove old ones; returns its mark. Raises UsageError."""
    mark = secrets.token_hex(8)
    write(name, mark, note)
    with suppress(OSError):
        for path in _path(name, mark).parent.iterdir():
            if path.stat().st_mtime < time.time() - _KEPT:
                path.unlink()
    return mark


def write(name: str, mark: str, note: Note) -> None:
    """Raises UsageError."""
    path = _path(name, mark)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = path.with_suffix(f".{os.getpid()}")
        made.write_text(json.dumps(note._asdict()))
        made.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot be written: {reason}", where=str(path)) from None


def read(name: str, mark: str) -> Note | None:
    try:
        return Note(**json.loads(_path(name, mark).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remove(name: str, mark: str) -> None:
    """Nothing was submitted."""
    _path(name, mark).unlink(missing_ok=True)


def mark_of(spec: Document) -> str:
    """The mark of a session's note, from its specification; empty for none."""
    return str((spec.get("properties") or {}).get(PROPERTY, ""))


def _path(name: str, mark: str) -> Path:
    """A restarted session has the mark of the first, and not its name."""
    file = hashlib.sha256(f"{name} {mark}".encode()).hexdigest()[:32]
    return settings.home().root / "dev" / f"{file}.json"


def session_job(name: str) -> ShownJob:
    """The job of a session. Raises NotFound."""
    try:
        job = find_server.ask(routes.show_job, name)
    except NotFound:
        hint = "`allranks dev list` lists them; `allranks dev` starts one"
        raise NotFound(f"no session {name.removeprefix(PREFIX)!r}", hint=hint) from None
    return job
