"""Lead to services of jobs, for those who are signed in: a socket and a host name for each.

The server serves the host name from what is here: see `server.http.service_pages`.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from allranks.http_client import Client
from allranks.sdk.jobs.channel import Channel, PortForward


class Place(NamedTuple):
    """A service of a job on a node, for whoever has that token."""

    token: str
    job: str
    service: str
    node: int


class ServiceLinks:
    """Thread-safe. ``folder`` is emptied: nothing of it outlives its process."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._labels: dict[Place, str] = {}
        self._lock = threading.Lock()

    def open(self, place: Place, connect: Callable[[], Client]) -> tuple[str, str]:
        """The label of its host name and a code that is valid once. Raises AllranksError."""
        with self._lock:
            label = self._labels.get(place)
            if label is None:
                label = self._labels[place] = self._led(place, connect)
        code = secrets.token_urlsafe(32)
        # If it has ended meanwhile, the code says so.
        with contextlib.suppress(OSError):
            (self._folder / label / hashlib.sha256(code.encode()).hexdigest()).touch()
        return label, code

    def _led(self, place: Place, connect: Callable[[], Client]) -> str:
        channel = Channel(place.job, None, place.node, connect=connect, service=place.service)
        label = f"service-{secrets.token_hex(16)}"
        folder = self._folder / label
        folder.mkdir(mode=0o700)
        (folder / "secret").write_text(secrets.token_urlsafe(32))
        listener = socket.socket(socket.AF_UNIX)
        # Relative to this process' folder: a socket's path is limited to 107 bytes.
        listener.bind(f"{folder}/socket")
        listener.listen(128)
        words = (place, folder, PortForward(channel, listener, lambda why: None), listener)
        threading.Thread(target=self._serve, args=words, daemon=True).start()
        return label

    def _serve(
        self, place: Place, folder: Path, forward: PortForward, listener: socket.socket
    ) -> None:
        """Until the job, its attempt or the token has ended."""
        with contextlib.suppress(Exception):
            forward.serve()
        with self._lock:
            self._labels.pop(place, None)
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)
