"""Tokens of people: random, told once, kept as their hash.

A hash made for passwords would be slow on purpose, for each request; of 256 random bits nobody
guesses any, however fast.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from typing import Any, NamedTuple

from allranks.errors import Conflict, NotFound, UsageError
from allranks.server.auth.roles import OWNER, Person, Role
from allranks.store.key_values import Settings

log = logging.getLogger("allranks.tokens")
# What a token begins with, so that those who look for secrets in code find it.
PREFIX = "allranks_"
_TOKENS, _USED = "tokens", "tokens.used"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_DAY = 86400.0
# Seconds between two notes of when a token was used.
_NOTED = 60.0


class Token(NamedTuple):
    """Times: seconds since the epoch; None: never."""

    person: Person
    created_at: float
    expires_at: float | None
    used_at: float | None


class Tokens:
    """Those of a home but its own. Any thread may ask; a home has one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = dict(settings.get(_TOKENS) or {})
        self._used: dict[str, float] = dict(settings.get(_USED) or {})

    def create(self, name: str, role: Role, days: float | None = None) -> str:
        """A new token, which nobody can be told again. Raises Conflict, UsageError."""
        if not _NAME.fullmatch(name):
            hint = "letters, digits, `-`, `_`, `.` and `@`, 63 at most"
            raise UsageError(f"{name[:80]!r} is no name for a user", where="name", hint=hint)
        made, now = PREFIX + secrets.token_urlsafe(32), time.time()
        with self._lock:
            if name == OWNER.name or name in self._kept:
                hint = f"revoke it first (allranks server token revoke {name}), or another name"
                if name == OWNER.name:
                    hint = f"{name!r} is who owns the home: another name"
                raise Conflict(f"{name!r} has a token already", where="name", hint=hint)
            ends = None if days is None else now + days * _DAY
            told = {"hash": _hashed(made), "role": str(role), "created_at": now, "expires_at": ends}
            self._settings.change(_TOKENS, {name: told})
            self._settings.change(_USED, {name: None})
            self._kept[name] = told
            self._used.pop(name, None)
        return made

    def find(self, token: str) -> Person | None:
        """Whose it is; None where it is nobody's, or not any more."""
        if not token.startswith(PREFIX):
            return None
        shown, now = _hashed(token), time.time()
        with self._lock:
            found = None
            for name, told in self._kept.items():  # all of them, whichever it is
                if hmac.compare_digest(told["hash"], shown):
                    found = name
            if found is None or (self._kept[found]["expires_at"] or now + 1) <= now:
                return None
            if now - self._used.get(found, 0.0) > _NOTED:
                self._used[found] = now
                # Who asks is the event loop, and the record may be busy, or its disk full.
                threading.Thread(target=self._note, args=(found, now), daemon=True).start()
            return Person(found, Role[self._kept[found]["role"].upper()])

    def _note(self, name: str, now: float) -> None:
        try:
            self._settings.change(_USED, {name: now})
        except Exception as error:
            log.warning("that the token of %s was used could not be noted: %s", name, error)

    def revoke(self, name: str) -> None:
        """It opens nothing from now on. Raises NotFound."""
        with self._lock:
            if name not in self._kept:
                hint = "`allranks server token list` shows those there are"
                raise NotFound(f"there is no token of {name!r}", hint=hint)
            self._settings.change(_TOKENS, {name: None})
            del self._kept[name]

    def list(self) -> list[Token]:
        """By name, without what they are."""
        with self._lock:
            return [
                Token(
                    Person(name, Role[told["role"].upper()]),
                    told["created_at"],
                    told["expires_at"],
                    # A note of one before of that name may come late.
                    used if (used := self._used.get(name, 0.0)) >= told["created_at"] else None,
                )
                for name, told in sorted(self._kept.items())
            ]


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
