"""What the agent has to say, on disk and in memory to its end.

Numbered from 1 and appended to a file, so that nothing said is lost with the agent: a server that
shares the disk reads the file of one that died. Sending twice is harmless, the number tells. What
the server has acknowledged is kept all the same: a database restored from a backup has not got it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any, TextIO

from allranks import clock
from allranks.errors import UsageError
from allranks.events import Event, Kind
from allranks.plan.lifecycle.validate_event import validate_event
from allranks.plan.text import repaired

NAME = "outbox.jsonl"
# What of an event decides how its job goes on.
_NEEDED = ("reason", "code", "address", "host", "ports", "failed_at", "ended_at", "message")


class Outbox:
    def __init__(self, folder: Path, launch: int, node: int) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self._launch, self._node = launch, node
        self._said: list[Event] = []
        self._heard = 0
        self._lock = threading.Lock()

    def say(self, kind: Kind, attempt: int, *, rank: int | None = None, **data: Any) -> None:
        with self._lock:
            seq = len(self._said) + 1
            data = repaired(data)  # what ranks print and files are called may be any bytes
            event = Event(kind, clock.now(), self._launch, attempt, self._node, rank, seq, data)
            self._said.append(event)
            # On a full disk the server has to hear it from us: only the spare copy is lost.
            with contextlib.suppress(OSError):
                self._keep(event)

    def _keep(self, event: Event) -> None:
        new = [event]
        if self._file is None:
            self._file, new = self._path.open("a"), self._said
        # The line break comes first, so that a torn line does not spoil the next.
        self._file.write("".join("\n" + json.dumps(each._asdict()) for each in new))
        self._file.flush()

    def reduce(self, seq: int, why: str) -> None:
        """Let an event that the server refuses say only what the job's course depends on; after
        that be a note in its place, so that what follows it is heard."""
        with self._lock:
            event = self._said[seq - 1]
            data = {key: each for key, each in event.data.items() if key in _NEEDED}
            if data == event.data:
                event, data = event._replace(kind=Kind.NOTE, rank=None), {}
            message = f"the server refused a part of this event: {why}"
            self._said[seq - 1] = event._replace(data={**data, "message": repaired(message)})

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()

    def kept(self) -> list[Event]:
        """What the server has not acknowledged yet, in order."""
        with self._lock:
            return self._said[self._heard :]

    def acknowledged(self, seq: int) -> None:
        """The server has what was said up to ``seq``, which may be less than it had before."""
        with self._lock:
            self._heard = min(seq, len(self._said))


def read(folder: Path) -> list[Event]:
    """All that the agent of that folder said; a torn last line was never said."""
    try:
        lines = (folder / NAME).read_text(errors="replace").split("\n")
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(validate_event(repaired(json.loads(line))))
        except (ValueError, RecursionError, UsageError):
            continue
    return found
