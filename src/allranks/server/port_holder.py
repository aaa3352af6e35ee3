"""Which program listens on a port of this machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from allranks.core.text import printable

_PROC, _LISTENS = Path("/proc"), "0A"
# Characters of a command line that are shown.
_SHOWN = 80


class Holder(NamedTuple):
    """``job`` is empty for a program of no job, or of one that hides it."""

    pid: int
    program: str
    job: str


def holder(port: int) -> Holder | None:
    """The program that listens on that port; None if this user cannot see it."""
    sockets = set[str]()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    for process in _PROC.glob("[0-9]*") if sockets else ():
        with contextlib.suppress(OSError):
            if any(os.readlink(file) in sockets for file in (process / "fd").iterdir()):
                return _described(process)
    return None


def _described(process: Path) -> Holder:
    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    job = ""
    for variable in (process / "environ").read_bytes().split(b"\0"):
        if variable.startswith(b"ALLRANKS_JOB="):
            job = variable.partition(b"=")[2].decode(errors="replace")
    return Holder(int(process.name), printable(words.strip()[:_SHOWN]), printable(job[:_SHOWN]))
