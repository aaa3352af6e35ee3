"""Tokens of people: random, shown once, stored as their hash.

A plain SHA-256 suffices: 256 random bits cannot be guessed, and a password hash would slow down
every request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import secrets
import threading
import time
from typing import Any, NamedTuple

from allranks.api.routes import Role
from allranks.errors import Conflict, NotFound, UsageError
from allranks.server.auth.roles import OWNER, Person
from allranks.store.key_values import Settings

log = logging.getLogger("allranks.tokens")
# Lets secret scanners recognise tokens.
PREFIX = "allranks_"
_TOKENS, _USED = "tokens", "tokens.used"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_DAY = 86400.0
# Seconds between two updates of a token's last use.
_USE_INTERVAL = 60.0


class Token(NamedTuple):
    """A token without its secret. Times are seconds since the epoch; None: never."""

    person: Person
    created_at: float
    expires_at: float | None
    used_at: float | None


class Tokens:
    """The tokens of a home, other than its own. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = dict(settings.get(_TOKENS) or {})
        self._used: dict[str, float] = dict(settings.get(_USED) or {})

    def create(self, name: str, role: Role, days: float | None = None) -> str:
        """Create a token and return it; it cannot be shown again. Raises Conflict, UsageError."""
        if not _NAME.fullmatch(name):
            hint = "use at most 63 letters, digits, `-`, `_`, `.` and `@`"
            raise UsageError(f"{name[:80]!r} is not a valid user name", where="name", hint=hint)
        token = PREFIX + secrets.token_urlsafe(32)
        now = time.time()
        with self._lock:
            if name == OWNER.name or name in self._kept:
                hint = f"choose another name, or revoke it: allranks server token revoke {name}"
                if name == OWNER.name:
                    hint = f"choose another name: {name!r} is the owner of the home"
                raise Conflict(f"{name!r} already has a token", where="name", hint=hint)
            ends = None if days is None else now + days * _DAY
            stored = {
                "hash": _hashed(token),
                "role": str(role),
                "created_at": now,
                "expires_at": ends,
            }
            self._settings.change(_TOKENS, {name: stored})
            self._settings.change(_USED, {name: None})
            self._kept[name] = stored
            self._used.pop(name, None)
        return token

    def find(self, token: str) -> Person | None:
        """The owner of a valid token, else None."""
        if not token.startswith(PREFIX):
            return None
        shown = _hashed(token)
        now = time.time()
        with self._lock:
            owner = None
            for name, stored in self._kept.items():  # always all of them, in constant time
                if hmac.compare_digest(stored["hash"], shown):
                    owner = name
            if owner is None:
                return None
            expires_at = self._kept[owner]["expires_at"]
            if expires_at is not None and expires_at <= now:
                return None
            if now - self._used.get(owner, 0.0) > _USE_INTERVAL:
                self._used[owner] = now
                # In a thread: this runs in the event loop, and the database may be slow.
                threading.Thread(target=self._record_use, args=(owner, now), daemon=True).start()
            return Person(owner, Role[self._kept[owner]["role"].upper()], expires_at)

    def role(self, name: str) -> Role | None:
        """What a person may do now, who need not be here to ask; None without a valid token."""
        if name == OWNER.name:
            return OWNER.role
        with self._lock:
            stored = self._kept.get(name)
        if stored is None or (stored["expires_at"] or math.inf) <= time.time():
            return None
        return Role[stored["role"].upper()]

    def _record_use(self, name: str, now: float) -> None:
        try:
            self._settings.change(_USED, {name: now})
        except Exception as error:
            log.warning("could not record the use of the token of %s: %s", name, error)

    def revoke(self, name: str) -> None:
        """Invalidate the token of ``name``. Raises NotFound."""
        with self._lock:
            if name not in self._kept:
                hint = "list them: allranks server token list"
                raise NotFound(f"no token of {name!r} found", hint=hint)
            self._settings.change(_TOKENS, {name: None})
            del self._kept[name]

    def list(self) -> list[Token]:
        """All tokens by name, without their secrets."""
        with self._lock:
            return [
                Token(
                    Person(name, Role[stored["role"].upper()]),
                    stored["created_at"],
                    stored["expires_at"],
                    # The last use of an earlier token of that name may be recorded late.
                    used if (used := self._used.get(name, 0.0)) >= stored["created_at"] else None,
                )
                for name, stored in sorted(self._kept.items())
            ]


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
