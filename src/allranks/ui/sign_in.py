"""Signing in: one-time links and sealed cookies.

A cookie holds the person's token, encrypted with a key that only this process reads, so that it
survives a restart and is worth nothing elsewhere. The API checks the token at every call.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from cryptography.fernet import Fernet, InvalidToken

from allranks import folder_trees

# Seconds that a link and a cookie are valid.
LINK, COOKIE = 300.0, 30 * 86400
# More links than this at once are not kept.
_MOST = 1000


def load_key(path: Path) -> bytes:
    """The key of the cookies, made at the first start, readable only by its owner."""
    if not path.exists():
        folder_trees.write_file(path, Fernet.generate_key())
    return path.read_bytes()


class SignedIn(NamedTuple):
    """``forms`` is a secret that every form of the page carries."""

    token: str
    forms: str


class Doorkeeper:
    """Makes and checks one-time codes and cookies."""

    def __init__(self, key: bytes) -> None:
        self._key, self._seal = key, Fernet(key)
        self._links: dict[str, tuple[float, str]] = {}

    def link(self, token: str) -> str:
        """A code that signs in once, within ``LINK`` seconds."""
        now = time.monotonic()
        valid = [(code, each) for code, each in self._links.items() if each[0] > now]
        self._links = dict(valid[-_MOST:])
        code = secrets.token_urlsafe(32)
        self._links[code] = (now + LINK, token)
        return code

    def redeem(self, code: str) -> str | None:
        """The token of a code, which is used up; None if it is not valid."""
        token = self.token_of(code)
        self._links.pop(code, None)
        return token

    def token_of(self, code: str) -> str | None:
        """The token of a code, which stays valid."""
        until, token = self._links.get(code, (0.0, ""))
        return token if until > time.monotonic() else None

    def cookie(self, token: str) -> str:
        return self._seal.encrypt(token.encode()).decode()

    def open(self, cookie: str) -> SignedIn | None:
        """Whom a cookie signs in; None if it is not valid any more."""
        try:
            token = self._seal.decrypt(cookie.encode(), ttl=COOKIE).decode()
        except (InvalidToken, UnicodeError):
            return None
        forms = hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()
        return SignedIn(token, forms)
