"""The state folder of a node: there before its ranks, kept in step while they run, and saved.

A thread looks at it again and again. What keeps that from working is told, and keeps no rank from
working: what is saved already stays, and the next look tries again.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Callable, Mapping

from allranks.agent.state.sync import Note, Sync
from allranks.agent.state.transfer import Wire
from allranks.agent.state.tree import Torn, Tree
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.errors import AllranksError, ServerError, Unauthorized, Unreachable
from allranks.plan.data.state_manifest import SHARED, own

# How many times the work that a look was passes before the next; how many times its own pace the
# server is asked for what other nodes have, as long as there is nothing.
_SHARE, _SELDOM = 10.0, 8
# How often a file may change under our eyes at the very end.
_TRIES = 9


class _Enough(Exception):
    """This is to be broken off."""


class State:
    """On one of so many ``nodes``; ``pace``: seconds between two looks. ``known``: whether the
    server has anything of it yet. ``note`` hears what a person should know."""

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
        # As `Work` has places on the node.
        self.paths = {
            "state_dir": str(folder / SHARED),
            "instance_state_dir": str(folder / mine),
        }
        self._wire = Wire(door, where.node, lambda: None)
        self._tree = Tree(folder, (SHARED, mine))
        self._sync = Sync(self._tree, self._wire, where.node, note)
        self._alone, self._pace, self._known, self._note = nodes == 1, pace, known, note
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._trouble, self._torn, self._full = "", 0, 0.0

    def begin(
        self, attempt: int, wait: Callable[[float], None], doing: Callable[[str], None]
    ) -> None:
        """Have here what there is; ``wait`` lets some seconds pass, and may raise, ``doing`` is
        told what may take long. A server that goes away meanwhile is waited for. Raises
        AllranksError, OSError."""
        self._sync.attempt = attempt
        self._tree.make()
        if not self._known and attempt == 1:
            return
        self._wire.go_on = lambda: wait(0.0)
        doing("fetches its state")
        while True:
            try:
                if told := self._sync.fetch_all():
                    self._note(told)
                return
            except Unreachable:
                wait(0.5)

    def start(self) -> None:
        """The ranks run: keep it in step from now on."""
        self._over.clear()
        self._wire.go_on = self._unless_over
        self._thread = threading.Thread(target=self._keep, name="state", daemon=True)
        self._thread.start()

    def finish(
        self,
        done: bool,
        grace: float,
        order: Callable[[], Mapping[str, object]],
        wait: Callable[[float], None],
    ) -> None:
        """The ranks have ended: save what they have left. Of a job that is ``done`` all of it, as
        long as the ``order`` stays what it is; otherwise, or while a disk is full, for as long as
        the ``grace``."""
        self._over.set()
        self._full = 0.0
        known, until = order(), math.inf if done else time.monotonic() + grace

        def go_on(seconds: float = 0.0) -> None:
            nonlocal until
            wait(seconds)
            if until == math.inf and order() != known:
                until = time.monotonic() + grace
            if time.monotonic() > until:
                raise _Enough

        try:
            while self._thread is not None and self._thread.is_alive():
                go_on(0.02)
            self._wire.go_on = go_on
            while not self._is_saved():
                if self._full and time.monotonic() > self._full + grace:
                    raise _Enough
                go_on(0.5)
        except _Enough:
            why = self._trouble or "there was no time left"
            self._note(f"the end of the state is not saved: {why}")

    def close(self) -> None:
        self._wire.close()

    def _is_saved(self) -> bool:
        """Whether nothing is left to be done. Raises _Enough where it is of no use to try."""
        try:
            while self._sync.look(end=True):
                self._wire.go_on()
            if not self._sync.is_empty:
                self._sync.over()
            return True
        except (AllranksError, OSError, Torn) as error:
            self._trouble = _sentence(error)
            self._torn += isinstance(error, Torn)
            full = _is_full(error)
            self._full = (self._full or time.monotonic()) if full else 0.0
            passes = full or isinstance(error, Unreachable | Torn)
            if self._torn > _TRIES or not passes:
                raise _Enough from None
            return False

    def _keep(self) -> None:
        """What the thread does."""
        seldom, due = 1.0, time.monotonic()
        pause = self._pace
        while not self._over.wait(pause):
            began = time.thread_time()
            ask = not self._alone and time.monotonic() >= due
            try:
                stirred = self._sync.look(ask=ask)
            except (_Enough, Unauthorized):
                return
            except (AllranksError, OSError, Torn) as error:
                self._tell(error)
                stirred = False
            else:
                self._trouble = ""
            if ask or stirred:
                seldom = 1.0 if stirred else min(_SELDOM, seldom * 2)
                due = time.monotonic() + self._pace * seldom
            pause = max(self._pace, (time.thread_time() - began) * _SHARE)

    def _tell(self, error: Exception) -> None:
        """Once, of what is not mended by itself: a server that is away comes back."""
        said = _sentence(error)
        if said != self._trouble and not isinstance(error, Unreachable | Torn):
            self._note(f"the state is not saved for now: {said}")
        self._trouble = said

    def _unless_over(self) -> None:
        if self._over.is_set():
            raise _Enough


def _is_full(error: Exception) -> bool:
    """Whether a disk had no room: this node's, or, as a server that cannot do it says, its own."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return type(error) is ServerError


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {os.fspath(error.filename or 'on this node')}"
    return str(error) or "it is still being written to"
