"""The objects of one kind that carry a home's label, kept current by one watch.

`poll` reads them without a request. The watch resumes at the last resource version; bookmarks move
that version on, and the list is read again only if the cluster no longer knows it (410).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from allranks.engines.answers import understood
from allranks.engines.kubernetes.api import Api, Expired, Object
from allranks.errors import AllranksError, EngineError

log = logging.getLogger("allranks.kubernetes")

# Pages of a list, of 500 objects each.
_PAGES = 1000
# Seconds that one watch lasts. Shorter than what load balancers cut, and the longest time in which
# a paused API server stays unnoticed, plus ten.
_WATCH = 50
# Seconds that a created object counts although no event has shown it yet.
_PENDING = 10.0
# Seconds without a reader after which the watch ends.
_IDLE = 300.0
_BACKOFF = (0.2, 10.0)

View = TypeVar("View")


class Cache(Generic[View]):
    """``view`` turns an object into what is kept of it. ``trouble`` is why the objects may be
    outdated, empty if they are current."""

    def __init__(
        self,
        api: Api,
        kind: str,
        selector: str,
        view: Callable[[Object], View],
        seconds: int = _WATCH,
    ) -> None:
        self._api, self._kind, self._selector, self._view = api, kind, selector, view
        self._seconds = seconds
        self._lock = threading.Lock()
        self._synced = threading.Event()
        self._objects: dict[str, View] = {}
        self._created: dict[str, tuple[float, View]] = {}
        self._version = ""
        self._read_at = 0.0
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def read(self, patience: float) -> Mapping[str, View]:
        """Return the objects by name, as they are at most ``patience`` seconds from now if the
        watch has just started. Check ``trouble`` afterwards."""
        with self._lock:
            self._read_at = time.monotonic()
            if self._thread is None:
                self._synced.clear()
                self.trouble = "the cluster has not answered yet"
                self._thread = threading.Thread(
                    target=self._run, name=f"watch {self._kind}", daemon=True
                )
                self._thread.start()
        self._synced.wait(patience)
        with self._lock:
            until = time.monotonic() - _PENDING
            self._created = {
                name: (at, view) for name, (at, view) in self._created.items() if at > until
            }
            return {name: view for name, (_, view) in self._created.items()} | self._objects

    def add(self, created: Object) -> None:
        """Count an object that was created just now, until the watch shows it."""
        name = created["metadata"]["name"]
        with self._lock:
            if name not in self._objects:
                self._created[name] = (time.monotonic(), self._view(created))

    def discard(self, name: str) -> None:
        """Forget an object that was created just now, because it is deleted."""
        with self._lock:
            self._created.pop(name, None)

    def _run(self) -> None:
        pause = _BACKOFF[0]
        while not self._is_idle():
            try:
                if not self._version:
                    understood("the cluster", self._list)()
                understood("the cluster", self._watch)()
                pause = _BACKOFF[0]
            except Expired:
                self._version = ""
            except Exception as error:
                if not isinstance(error, AllranksError):
                    self._version = ""
                    log.exception("the watch of %s failed; it starts again", self._kind)
                if error.__cause__ is not None:  # an answer that was not understood
                    self._version = ""
                self.trouble = str(getattr(error, "message", None) or error)
                self._synced.set()  # readers get the trouble, not a wait
                time.sleep(pause)
                pause = min(2 * pause, _BACKOFF[1])

    def _is_idle(self) -> bool:
        with self._lock:
            if time.monotonic() - self._read_at < _IDLE:
                return False
            self._thread, self._version = None, ""
            return True

    def _list(self) -> None:
        path = self._api.path(self._kind)
        token = ""
        began = time.monotonic()
        views: dict[str, View] = {}
        for _ in range(_PAGES):
            more = {"continue": token} if token else {}
            page = self._api.get(path, labelSelector=self._selector, limit="500", **more)
            views |= {item["metadata"]["name"]: self._view(item) for item in page["items"]}
            token = page["metadata"].get("continue") or ""
            if not token:
                break
        else:
            raise EngineError(f"the cluster's list of {self._kind} does not end")
        with self._lock:
            self._objects, self._version = views, page["metadata"]["resourceVersion"]
            # Whatever was created before and is not listed no longer exists.
            self._created = {
                name: (at, view)
                for name, (at, view) in self._created.items()
                if at > began and name not in views
            }
        self.trouble = ""
        self._synced.set()

    def _watch(self) -> None:
        events = self._api.watch(
            self._api.path(self._kind),
            self._seconds,
            labelSelector=self._selector,
            resourceVersion=self._version,
        )
        self.trouble, began = "", time.monotonic()
        for event in events:
            self._take(event)
        if time.monotonic() - began < 1:
            time.sleep(_BACKOFF[0])  # a server that ends each watch at once

    def _take(self, event: Mapping[str, Any]) -> None:
        item = event["object"]
        name = item["metadata"].get("name", "")
        with self._lock:
            self._version = item["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                return
            self._created.pop(name, None)
            if event["type"] == "DELETED":
                self._objects.pop(name, None)
            else:
                self._objects[name] = self._view(item)
