"""The state folder of a node: fetched before the ranks start, synchronized while they run, and
saved at the end.

A thread synchronizes it at intervals. Its errors are reported and do not affect the ranks: what was
saved stays, and the next round tries again.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Callable, Mapping

from allranks.agent.state.sync import Note, Sync
from allranks.agent.state.transfer import StateClient
from allranks.agent.state.tree import ChangedMeanwhile, Tree
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.errors import AllranksError, ServerError, Unauthorized, Unreachable
from allranks.plan.data.state_manifest import SHARED, own

# The pause between rounds, in multiples of the CPU time of the last one; and the longest interval
# of asking the server for changes of other nodes, in multiples of the interval of rounds.
_SCAN_FACTOR, _MAX_POLL_FACTOR = 10.0, 8
# How often a file may change while it is saved at the end.
_ATTEMPTS = 9


class _Stopped(Exception):
    """The current transfer is to stop."""


class State:
    """The state folder of one of ``nodes`` nodes. ``pace``: seconds between rounds. ``known``:
    whether the server may have a state already. ``note`` receives messages for the record."""

    def __init__(
        self,
        where: AgentIdentity,
        door: ServerAddress,
        nodes: int,
        pace: float,
        known: bool,
        note: Note,
    ) -> None:
        folder, mine = where.folder / "state", own(where.node)
        self.paths = {
            "state_dir": str(folder / SHARED),
            "instance_state_dir": str(folder / mine),
        }
        self._client = StateClient(door, where.node, lambda: None)
        self._tree = Tree(folder, (SHARED, mine))
        self._sync = Sync(self._tree, self._client, where.node, note)
        self._alone, self._pace, self._known, self._note = nodes == 1, pace, known, note
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._last_error, self._change_count, self._full_since = "", 0, 0.0

    def begin(
        self, attempt: int, wait: Callable[[float], None], doing: Callable[[str], None]
    ) -> None:
        """Create the folder and fetch its files; waits while the server is unreachable. ``wait``
        sleeps for some seconds and may raise; ``doing`` receives the current activity. Raises
        AllranksError, OSError."""
        self._sync.attempt = attempt
        self._tree.make()
        if not self._known and attempt == 1:
            return
        self._client.go_on = lambda: wait(0.0)
        doing("fetches the state folder")
        while True:
            try:
                if summary := self._sync.fetch_all():
                    self._note(summary)
                return
            except Unreachable:
                wait(0.5)

    def start(self) -> None:
        """Start to synchronize in a thread."""
        self._stopped.clear()
        self._client.go_on = self._check_stopped
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)
        self._thread.start()

    def finish(
        self,
        done: bool,
        grace: float,
        order: Callable[[], Mapping[str, object]],
        wait: Callable[[float], None],
    ) -> None:
        """Stop the thread and save the rest after the ranks have ended. If the job is ``done``,
        this takes as long as needed until ``order`` changes; otherwise, or while a disk is full, at
        most ``grace`` seconds."""
        self._stopped.set()
        self._full_since = 0.0
        first_order, until = order(), math.inf if done else time.monotonic() + grace

        def go_on(seconds: float = 0.0) -> None:
            nonlocal until
            wait(seconds)
            if until == math.inf and order() != first_order:
                until = time.monotonic() + grace
            if time.monotonic() > until:
                raise _Stopped

        try:
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.02)  # most often it ends at once
                go_on()
            self._client.go_on = go_on
            while not self._is_saved():
                if self._full_since and time.monotonic() > self._full_since + grace:
                    raise _Stopped
                go_on(0.5)
        except _Stopped:
            reason = self._last_error or "no time left"
            self._note(f"the last changes of the state folder are not saved: {reason}")

    def close(self) -> None:
        self._client.close()

    def _is_saved(self) -> bool:
        """Whether everything is saved; False to try again. Raises _Stopped if that is pointless."""
        try:
            while self._sync.sync_once(end=True):
                self._client.go_on()
            if not self._sync.is_empty:
                self._sync.complete()
            return True
        except (AllranksError, OSError, ChangedMeanwhile) as error:
            self._last_error = _error_text(error)
            self._change_count += isinstance(error, ChangedMeanwhile)
            full = _is_full(error)
            self._full_since = (self._full_since or time.monotonic()) if full else 0.0
            retryable = full or isinstance(error, Unreachable | ChangedMeanwhile)
            if self._change_count > _ATTEMPTS or not retryable:
                raise _Stopped from None
            return False

    def _run(self) -> None:
        poll_factor, due = 1.0, time.monotonic()
        pause = self._pace
        while not self._stopped.wait(pause):
            began = time.thread_time()
            ask = not self._alone and time.monotonic() >= due
            try:
                changed = self._sync.sync_once(ask=ask)
            except (_Stopped, Unauthorized):
                return
            except (AllranksError, OSError, ChangedMeanwhile) as error:
                self._report_error(error)
                changed = False
            else:
                self._last_error = ""
            if ask or changed:
                poll_factor = 1.0 if changed else min(_MAX_POLL_FACTOR, poll_factor * 2)
                due = time.monotonic() + self._pace * poll_factor
            pause = max(self._pace, (time.thread_time() - began) * _SCAN_FACTOR)

    def _report_error(self, error: Exception) -> None:
        """Note an error once, unless it passes by itself, as an unreachable server does."""
        message = _error_text(error)
        if message != self._last_error and not isinstance(error, Unreachable | ChangedMeanwhile):
            self._note(f"the state folder cannot be saved at the moment: {message}")
        self._last_error = message

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


def _is_full(error: Exception) -> bool:
    """Whether this node's disk is full, or the server's, which answers with a server error."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return type(error) is ServerError


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {os.fspath(error.filename or 'on this node')}"
    return str(error) or "a file is still being written to"
