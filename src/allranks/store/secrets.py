"""Secrets, encrypted in the database with a key in a file beside it.

A copy of the database alone reveals no secret; read access to the home does.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.errors import ServerError
from allranks.store.key_values import Settings

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_KEY = "secrets"


class Secrets:
    """Secrets by name, each a mapping of strings. ``file``: the key that encrypts, created with the
    first secret; ``key``: that of the value that holds them."""

    def __init__(self, settings: Settings, file: Path, key: str = _KEY) -> None:
        self._settings, self._file, self._key = settings, file, key

    def names(self) -> dict[str, list[str]]:
        """The keys of each secret, without values."""
        return {name: secret["keys"] for name, secret in self._all().items()}

    def get(self, name: str) -> dict[str, str]:
        """The secret, or an empty mapping. Raises ServerError if it was encrypted with another
        key."""
        stored = self._all().get(name)
        if stored is None:
            return {}
        from cryptography.fernet import Fernet, InvalidToken  # lazy: 30 ms, and few jobs need it

        try:
            text = Fernet(self._file.read_bytes()).decrypt(stored["value"].encode())
            secret: dict[str, str] = json.loads(text)
        except (InvalidToken, ValueError, FileNotFoundError):
            raise ServerError(
                f"cannot decrypt the credentials of {name!r}: the key file does not match",
                where=str(self._file),
                hint="restore this file from the database's backup, or enter the credentials again",
            ) from None
        return secret

    def put(self, name: str, values: Mapping[str, str]) -> None:
        """Store or replace a secret; an empty mapping deletes it."""
        if not values:
            self._settings.change(self._key, {name: None})
            return
        encrypted = self._fernet().encrypt(json.dumps(dict(values)).encode()).decode()
        self._settings.change(self._key, {name: {"keys": sorted(values), "value": encrypted}})

    def _all(self) -> dict[str, Any]:
        return dict(self._settings.get(self._key) or {})

    def _fernet(self) -> Fernet:
        from cryptography.fernet import Fernet  # lazy: as above

        if not self._file.exists():
            # Linking is atomic, and keeps the key of a concurrent process that was first.
            with tempfile.NamedTemporaryFile(dir=self._file.parent) as key:
                key.write(Fernet.generate_key())
                key.flush()
                os.fsync(key.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(key.name, self._file)
        return Fernet(self._file.read_bytes())
