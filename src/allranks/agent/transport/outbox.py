"""The agent's events, in memory and in a file, until the agent ends.

Events are numbered from 1, so sending one twice is harmless. If the agent dies, a server that
shares the disk reads the file. Acknowledged events are kept, too, because the server's database may
be restored from a backup."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from allranks import clock, folder_trees
from allranks.core.lifecycle.validate_event import validate_event
from allranks.core.text import repaired
from allranks.errors import UsageError
from allranks.events import Event, Kind
from allranks.statuses import Reason

NAME = "outbox.jsonl"
# Bytes and lines that are read of it: the job can write to it, and the server's loop reads it.
_LONGEST, _MOST = 64 << 20, 200_000
# The data of events on which decisions depend.
_NEEDED = ("reason", "code", "address", "host", "ports", "failed_at", "ended_at", "message")

# Nobody waits for these, nor for the end of a node that is done: they are sent with the next look
# at the logs, or by ``flush``, so that those of a short job travel together.
_PATIENT = frozenset({Kind.HELLO, Kind.STARTED, Kind.RANK_ENDED, Kind.NOTE, Kind.DRAINED, Kind.BYE})


class Outbox:
    def __init__(self, folder: Path, launch: int, node: int) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self._launch, self._node = launch, node
        self._events: list[Event] = []
        self._acknowledged = 0
        self._lock = threading.Lock()

    def say(self, kind: Kind, attempt: int, *, rank: int | None = None, **data: Any) -> bool:
        """Add an event. Return whether somebody waits for it."""
        with self._lock:
            seq = len(self._events) + 1
            data = repaired(data)  # output of ranks and file names may be any bytes
            event = Event(kind, clock.now(), self._launch, attempt, self._node, rank, seq, data)
            self._events.append(event)
            # On a full disk only the copy is lost: the server gets the event over the network.
            with contextlib.suppress(OSError):
                self._append(event)
        return kind not in _PATIENT and data.get("reason") != Reason.DONE

    def _append(self, event: Event) -> None:
        new = [event]
        if self._file is None:
            self._file, new = self._path.open("a"), self._events
        # The line break comes first, so that a torn line does not corrupt the next.
        self._file.write("".join("\n" + json.dumps(event._asdict()) for event in new))
        self._file.flush()

    def reduce(self, seq: int, why: str) -> None:
        """Reduce an event that the server refuses to the data that decisions need; the second time
        replace it with a note, so that the events after it can be sent."""
        with self._lock:
            event = self._events[seq - 1]
            data = {key: value for key, value in event.data.items() if key in _NEEDED}
            if data == event.data:
                event, data = event._replace(kind=Kind.NOTE, rank=None), {}
            message = f"the server refused a part of this event: {why}"
            self._events[seq - 1] = event._replace(data={**data, "message": repaired(message)})

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()

    def unacknowledged(self) -> list[Event]:
        """The events that the server has not acknowledged, in order."""
        with self._lock:
            return self._events[self._acknowledged :]

    def acknowledged(self, seq: int) -> None:
        """Record that the server has all events up to ``seq``, which may be fewer than before."""
        with self._lock:
            self._acknowledged = min(seq, len(self._events))


def read(folder: Path) -> list[Event]:
    """Return the events of the agent in that folder, without torn or invalid lines."""
    data = b""
    with folder_trees.SkipAbsent():  # the job may have put something else in its place
        data = folder_trees.read_file(folder / NAME, _LONGEST)
    events = []
    for line in islice(io.BytesIO(data), _MOST):
        try:
            text = line.decode(errors="replace")
            events.append(validate_event(repaired(json.loads(text))))
        except (ValueError, RecursionError, UsageError):
            continue
    return events
