"""Which job's files `job download` put into a folder, in a file of the home.

The layout is az's and does not name the job, so the files of two jobs in one folder would be mixed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allranks import settings
from allranks.errors import Conflict

# The folders of a download in which the files of several jobs cannot be told apart.
_LAYOUT = ("artifacts", "named-outputs", "attempts")


@contextmanager
def of_one_job(folder: Path, job: str) -> Iterator[None]:
    """Note that the files that the block downloads into the folder are those of the job. Raises
    Conflict if they are another job's, and still there."""
    note = _note(folder)
    try:
        other = note.read_text(encoding="utf-8")
    except OSError:
        other = ""
    if other not in ("", job) and _is_filled(folder):
        raise Conflict(
            f"the folder has files of the job {other}",
            where=str(folder),
            hint="name a folder for each job (-p DIR), or remove what is there; --any-folder mixes "
            "them",
        )
    try:
        yield
    finally:
        if _is_filled(folder):
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                note.write_text(job, encoding="utf-8")


def _note(folder: Path) -> Path:
    path = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return settings.home().downloads / path[:32]


def _is_filled(folder: Path) -> bool:
    return any(os.path.lexists(folder / each) for each in _LAYOUT)
