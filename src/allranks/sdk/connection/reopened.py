"""A connection to the server that is reopened when it breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from allranks.core.shared_work import Interrupted
from allranks.errors import Unreachable
from allranks.http_client import Client

# Seconds between retries without progress. The first retry starts a killed local server; a remote
# one has this long to return.
_PAUSES = (0.1, 0.3, 1.0, 3.0, 6.0, 10.0, 20.0)

T = TypeVar("T")


class Cut(Exception):
    """The connection broke in the middle of a request, of which a part may have arrived."""


class Connection:
    """One connection to the server, until ``stop``. ``kept`` says what another try finds. It begins
    with ``client`` if there is one."""

    def __init__(
        self,
        connect: Callable[[], Client],
        stop: threading.Event,
        kept: str,
        client: Client | None = None,
    ) -> None:
        self._connect, self._stop, self._kept = connect, stop, kept
        self._client = client
        self._heard = self._heard_at_cut = 0
        self._pauses = iter(_PAUSES)

    def hear(self, count: int = 1) -> None:
        """Note progress: the connection works."""
        self._heard += count

    def ask(self, ask: Callable[[Client], T]) -> T:
        """The reply, requested again if the connection breaks. Raises Unreachable when the server
        stays away, Interrupted."""
        pauses = iter(_PAUSES)
        while True:
            before = self._heard
            try:
                return ask(self._connected())
            except Unreachable as error:
                self.close()
                if self._heard > before:
                    pauses = iter(_PAUSES)
                self._wait(error, pauses)

    def ask_once(self, ask: Callable[[Client], T]) -> T:
        """The reply to what is not requested again as it was. Raises Cut if the connection breaks,
        and otherwise like ``ask``."""
        try:
            return ask(self._connected())
        except Unreachable as error:
            self.close()
            if self._heard > self._heard_at_cut:
                self._pauses = iter(_PAUSES)
            self._heard_at_cut = self._heard
            self._wait(error, self._pauses)
            raise Cut from None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _wait(self, error: Unreachable, pauses: Iterator[float]) -> None:
        pause = next(pauses, None)
        if pause is None:
            error.hint = f"run the same command again when it is back; {self._kept}"
            raise error
        if self._stop.wait(pause):
            raise Interrupted from None

    def release(self) -> Client | None:
        """The open connection, for somebody else."""
        client, self._client = self._client, None
        return client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
