"""Secrets: kept encrypted in the record, with a key that lies beside it and never in it.

A copy of the database alone tells nobody anything. Who may read the home may read both.
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
    """Mappings of texts by name; ``file`` holds the key, made when the first secret is kept."""

    def __init__(self, settings: Settings, file: Path) -> None:
        self._settings, self._file = settings, file

    def names(self) -> dict[str, list[str]]:
        """What there is of each, without its values."""
        return {name: each["keys"] for name, each in self._all().items()}

    def get(self, name: str) -> dict[str, str]:
        """Empty when there is none. Raises ServerError when the key is not the one it was kept
        with."""
        found = self._all().get(name)
        if found is None:
            return {}
        from cryptography.fernet import Fernet, InvalidToken  # lazy: 30 ms, and few jobs need it

        try:
            kept = Fernet(self._file.read_bytes()).decrypt(found["value"].encode())
            told: dict[str, str] = json.loads(kept)
        except (InvalidToken, ValueError, FileNotFoundError):
            raise ServerError(
                f"the credentials of {name!r} cannot be read: their key is another one",
                where=str(self._file),
                hint="restore that file from the backup of the database, or give them again",
            ) from None
        return told

    def put(self, name: str, values: Mapping[str, str]) -> None:
        """Keep them in the place of those there were; none: forget."""
        if not values:
            self._settings.change(_KEY, {name: None})
            return
        kept = self._fernet().encrypt(json.dumps(dict(values)).encode()).decode()
        self._settings.change(_KEY, {name: {"keys": sorted(values), "value": kept}})

    def _all(self) -> dict[str, Any]:
        return dict(self._settings.get(_KEY) or {})

    def _fernet(self) -> Fernet:
        from cryptography.fernet import Fernet  # lazy: as above

        if not self._file.exists():
            # Whole or not there; of two who make one at once the first counts.
            with tempfile.NamedTemporaryFile(dir=self._file.parent) as made:
                made.write(Fernet.generate_key())
                made.flush()
                os.fsync(made.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(made.name, self._file)
        return Fernet(self._file.read_bytes())
