"""Which job's files `job download` put into a folder, in a file of the home.

The layout is az's and does not name the job, so the files of two jobs in one folder would be mixed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from allranks import settings
from allranks.errors import Conflict

# The folders of a download in which the files of several jobs cannot be told apart.
_LAYOUT = ("artifacts", "named-outputs", "attempts")


def claim(folder: Path, job: str) -> None:
    """Note that files of the job are downloaded into the folder. Raises Conflict if there are files
    of another job."""
    note = _note(folder)
    with contextlib.suppress(OSError):
        other = note.read_text(encoding="utf-8")
        if other != job and any(os.path.lexists(folder / each) for each in _LAYOUT):
            raise Conflict(
                f"the folder has files of the job {other}",
                where=str(folder),
                hint="name a folder for each job (-p DIR), or remove what is there; --any-folder "
                "mixes them",
            )
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        note.write_text(job, encoding="utf-8")


def _note(folder: Path) -> Path:
    path = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return settings.home().downloads / path[:32]
