"""The state folder of a node: fetched before the ranks start, synchronized while they run, and
saved at the end.

A thread synchronizes it at intervals. Its errors are reported and do not affect the ranks: what was
saved stays, and the next round tries again.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from allranks.agent.state.sync import Note, Sync
from allranks.agent.state.torn_files import Deaths
from allranks.agent.state.transfer import StateClient
from allranks.agent.state.tree import ChangedMeanwhile, Tree
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.core.data import node_files
from allranks.core.data.state_manifest import SHARED, own
from allranks.errors import (
    AllranksError,
    NotFound,
    ServerError,
    Unauthorized,
    Unreachable,
    is_disk_full,
)

# The pause between rounds, in multiples of the CPU time of the last one; and the longest interval
# of asking the server for changes of other nodes, in multiples of the interval of rounds.
_SCAN_FACTOR, _MAX_POLL_FACTOR = 10.0, 8
# How often a file may change while it is saved at the end.
_ATTEMPTS = 9


class _Stopped(Exception):
    """The current transfer is to stop."""


class Folder(NamedTuple):
    """A folder that a node and the server each have a copy of. ``parts`` of it are synchronized,
    by the server's ``route``. ``name``: what messages call it. ``sends``: only this node changes
    it."""

    root: Path
    parts: tuple[str, ...]
    route: str
    name: str
    sends: bool


def state_folder(where: AgentIdentity) -> Folder:
    """The folder with a part of all nodes and one of this node."""
    parts = (SHARED, own(where.node))
    return Folder(where.folder / "state", parts, "state", "the state folder", False)


def job_files(where: AgentIdentity) -> Folder:
    """The folder with the files of the job's record that this node writes."""
    parts = node_files.parts(where.node)
    return Folder(where.folder / "record", parts, "record", "the job's files", True)


class State:
    """The ``folder`` of a node. ``alone``: no other node changes it. ``pace``: seconds between
    rounds. ``known``: whether the server may have files of it already. ``note`` receives messages
    for the record, ``warn`` what people have to know of the files."""

    def __init__(
        self,
        folder: Folder,
        where: AgentIdentity,
        server: ServerAddress,
        alone: bool,
        pace: float,
        known: bool,
        note: Note,
        warn: Note = lambda message: None,
    ) -> None:
        self._client = StateClient(server, where.node, lambda: None, folder.route)
        self._tree = Tree(folder.root, folder.parts)
        self._sync = Sync(self._tree, self._client, where.node, note, folder.name, folder.sends)
        self._alone, self._pace, self._known, self._note = alone, pace, known, note
        self._name, self._route, self._warn = folder.name, folder.route, warn
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._last_error, self._change_count, self._full_since = "", 0, 0.0

    @property
    def root(self) -> Path:
        """The folder with all its parts."""
        return self._tree.root

    @property
    def paths(self) -> dict[str, str]:
        """The paths of a state folder's parts, by what commands call them."""
        names = ("state_dir", "instance_state_dir")
        folders = (str(self._tree.root / part) for part in self._tree.parts)
        return dict(zip(names, folders, strict=True))

    def begin(
        self,
        attempt: int,
        wait: Callable[[float], None],
        doing: Callable[[str], None],
        sizes: Set[int] = frozenset(),
    ) -> None:
        """Create the folder and fetch its files; waits while the server is unreachable. ``wait``
        sleeps for some seconds and may raise; ``doing`` receives the current activity; ``sizes``:
        of sets that ranks write together. Raises AllranksError, OSError."""
        self._sync.attempt = attempt
        self._tree.make()
        if not self._known and attempt == 1:
            return
        self._client.go_on = lambda: wait(0.0)
        doing(f"fetches {self._name}")
        while True:
            try:
                if summary := self._sync.fetch_all():
                    self._note(summary)
                for message in self._sync.uneven(sizes):
                    self._warn(message)
                if attempt > 1 and self._route == "state" and not self._sync.is_empty:
                    self._note(f"attempt {attempt} continues with {self._name}")
                return
            except Unreachable:
                wait(0.5)

    def start(self, deaths: Deaths | None = None) -> None:
        """Start to synchronize in a thread. ``deaths``: those of this attempt's ranks, for a folder
        from which the next attempt continues."""
        self._stopped.clear()
        self._sync.begin_attempt(deaths or Deaths(), watch=deaths is not None)
        self._client.go_on = self._check_stopped
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)
        self._thread.start()

    def finish(
        self,
        done: bool,
        grace: float,
        order: Callable[[], Mapping[str, object]],
        wait: Callable[[float], None],
    ) -> str:
        """Stop the thread and save the rest after the ranks have ended. If the job is ``done``,
        this takes as long as needed until ``order`` says something else, and returns once a disk
        is full, to be called again; otherwise at most ``grace`` seconds. Return why not everything
        is saved; '' if it is."""
        self._stopped.set()
        self._full_since = 0.0
        first_order = _what(order())
        until = math.inf if done else time.monotonic() + grace

        def go_on(seconds: float = 0.0) -> None:
            nonlocal until
            wait(seconds)
            if until == math.inf and _what(order()) != first_order:
                until = time.monotonic() + grace
            if time.monotonic() > until:
                raise _Stopped

        try:
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.02)  # most often it ends at once
                go_on()
            self._client.go_on = go_on
            if not done:
                self._sync.find_torn()
            while not self._is_saved():
                patience = 0.0 if done and is_disk_full(self._last_error) else grace
                if self._full_since and time.monotonic() >= self._full_since + patience:
                    raise _Stopped
                go_on(0.5)
        except _Stopped:
            reason = self._last_error or "no time left"
            if not (done and is_disk_full(reason)):
                self._note(f"the last changes of {self._name} are not saved: {reason}")
            return reason
        return ""

    def close(self) -> None:
        self._client.close()
        self._sync.writers.close()

    def _is_saved(self) -> bool:
        """Whether everything is saved; False to try again. Raises _Stopped if that is pointless."""
        try:
            return self._save()
        except (AllranksError, OSError, ChangedMeanwhile) as error:
            self._last_error = _error_text(error)
            self._change_count += isinstance(error, ChangedMeanwhile)
            full = _is_full(error)
            self._full_since = (self._full_since or time.monotonic()) if full else 0.0
            retryable = full or isinstance(error, Unreachable | ChangedMeanwhile)
            if self._change_count > _ATTEMPTS or not retryable:
                raise _Stopped from None
            return False

    def _save(self) -> bool:
        while self._sync.sync_once(end=True):
            self._client.go_on()
        self._send_torn()
        return self._sync.is_empty or self._sync.complete()

    def _send_torn(self) -> None:
        for message in self._sync.send_torn():
            self._warn(message)

    def _run(self) -> None:
        poll_factor, due, rest = 1.0, time.monotonic(), self._pace / 2
        while not self._stopped.wait(_until_look(self._pace, rest, time.time())):
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
                due = time.monotonic() + self._pace * (poll_factor - 0.5)
            rest = max(self._pace / 2, (time.thread_time() - began) * _SCAN_FACTOR)

    def _report_error(self, error: Exception) -> None:
        """Note an error once, unless it passes by itself: an unreachable server, or a file that is
        changed meanwhile, here or by another node."""
        message, passing = _error_text(error), (Unreachable, ChangedMeanwhile, NotFound)
        if message != self._last_error and not isinstance(error, passing):
            self._note(f"{self._name} cannot be saved at the moment: {message}")
        self._last_error = message

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


def _until_look(pace: float, rest: float, now: float) -> float:
    """Seconds until the next look, ``rest`` or more. All nodes look at the same moments, so that
    what their ranks write together is sent together."""
    return rest + -(now + rest) % pace


def _what(order: Mapping[str, object]) -> tuple[object, object]:
    """What an order says, without its id and places: a server that was started again gives the same
    order a new id."""
    return order.get("do"), order.get("why")


def _is_full(error: Exception) -> bool:
    """Whether this node's disk is full, or the server's, which answers with a server error."""
    return is_disk_full(error) if isinstance(error, OSError) else type(error) is ServerError


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {os.fspath(error.filename or 'on this node')}"
    where = getattr(error, "where", None)
    text = str(error) or "a file is still being written to"
    return f"{text}: {where}" if where and where not in text else text
