"""Uploads to object stores that may be on their way. Only the last object of one, its manifest,
tells that it is complete, and it may count on objects that are older than a day: so whoever uploads
says so before it lists them, and garbage collection keeps what was announced."""

from __future__ import annotations

import threading
import time

from allranks.core.data.garbage_rules import DAY
from allranks.errors import Conflict
from allranks.store.key_values import Settings

_KEY = "datastores.announced"
# Seconds for which an announcement holds, and after which it is written anew.
HOLDS, _RENEWED = DAY, 3600.0
# Seconds to wait for the removal of the same upload.
_PATIENCE = 60.0


class AnnouncedUploads:
    """Digests of uploads, in the home's settings. Thread-safe: an upload is never announced while
    it is removed, nor removed while it is announced."""

    def __init__(self, settings: Settings | None) -> None:
        self._settings = settings
        self._going: set[str] = set()
        self._changed = threading.Condition()

    def announce(self, digest: str) -> None:
        """Keep all its objects for a day. Waits for a removal; raises Conflict if it takes long."""
        assert self._settings is not None
        with self._changed:
            if not self._changed.wait_for(lambda: digest not in self._going, _PATIENCE):
                hint = "upload it again in a minute"
                raise Conflict("garbage collection is removing an older copy", hint=hint)
            times, now = self._times(), time.time()
            if now - times.get(digest, 0.0) >= min(_RENEWED, HOLDS):
                recent = {key: at for key, at in times.items() if now - at < HOLDS}
                self._settings.set(_KEY, {**recent, digest: now})

    def is_announced(self, digest: str) -> bool:
        return time.time() - self._times().get(digest, 0.0) < HOLDS

    def begin_removal(self, digest: str) -> bool:
        """False if it must not be removed; else ``end_removal`` follows."""
        with self._changed:
            if self.is_announced(digest):
                return False
            self._going.add(digest)
            return True

    def end_removal(self, digest: str) -> None:
        with self._changed:
            self._going.discard(digest)
            self._changed.notify_all()

    def _times(self) -> dict[str, float]:
        return (None if self._settings is None else self._settings.get(_KEY)) or {}
