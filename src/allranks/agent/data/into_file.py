"""Bytes of an answer that are written to a file as they arrive, without a copy of them all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from io import BufferedIOBase

from allranks.http_client import fill

# The most bytes of a piece of a file in one request.
LARGEST_PIECE = 16 << 20
# From this size on a server without TLS lets its kernel send a piece without a copy: what arrives
# may have been written after the server looked at the file.
SENDFILE_FROM = 1 << 20
# Bytes that are received before they are written: they are still in the processor's cache, then.
SLICE = 1 << 20


class NotWritten(Exception):
    """An ``error`` of this disk, which is none of the connection."""

    def __init__(self, error: OSError) -> None:
        self.error = error


class IntoFile:
    """Writes ``size`` bytes to an open file from ``at`` on, by way of ``buffer``; ``look`` receives
    them first."""

    def __init__(
        self,
        file: int,
        at: int,
        size: int,
        buffer: memoryview,
        look: Callable[[memoryview], object] = len,
    ) -> None:
        self.size, self.at = size, at
        self._file, self._buffer, self._look = file, buffer, look

    def read(self, file: BufferedIOBase) -> None:
        """Raises NotWritten, ConnectionResetError."""
        end = self.at + self.size
        while self.at < end:
            some = self._buffer[: end - self.at]
            fill(file, some)
            self._look(some)
            with of_this_disk():
                while some:
                    written = os.pwrite(self._file, some, self.at)
                    self.at, some = self.at + written, some[written:]


@contextlib.contextmanager
def of_this_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotWritten(error) from None
