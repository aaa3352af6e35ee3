"""An HTTP server as a child process, started at the first request: MLflow's, and the web page's.

It listens only on a Unix socket in a private folder. Its tether ends it when this process ends,
however that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from allranks.agent.processes.ranks import last_lines
from allranks.errors import ServerError

# Seconds to wait for its start (many packages, slow disks), for an answer, and for its end.
_PATIENCE = 180.0
ANSWER = 60.0
_GRACE = 3.0


class ChildServer(ABC):
    """Runs at most one server. Thread-safe; ``ready`` is for the event loop. ``folder`` has its log
    and its socket."""

    # For messages, and a path that answers 200 when it is up.
    title = ""
    health = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._fd: int | None = None
        self._coming: asyncio.Task[str] | None = None
        self._over = False
        # Set while it answers.
        self.up = threading.Event()

    @abstractmethod
    def command(self, socket: str) -> Sequence[str]:
        """The program that listens on the Unix socket of that path, which is relative to its
        working folder, ``folder``."""

    @abstractmethod
    def hint(self) -> str:
        """How to find out why it does not start."""

    def environment(self) -> Mapping[str, str]:
        """Variables beyond PATH, HOME and the like."""
        return {}

    def before_start(self) -> None:  # noqa: B027  # most need nothing
        """Called in the folder before each start."""

    async def ready(self) -> str:
        """The path of its socket once it answers; concurrent callers share one start."""
        if self._is_up():
            return self._socket()
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(asyncio.to_thread(self.start))
        return await asyncio.shield(self._coming)

    def start(self) -> str:
        """Start it unless it runs; returns the path of its socket. Raises ServerError."""
        with self._lock:
            if self._is_up():
                return self._socket()
            if self._over:
                raise ServerError("the server is stopping")
            self._end()
            try:
                self._begin()
            except OSError as error:
                raise self._trouble(error.strerror or str(error)) from error
            self._wait()
            self.up.set()
            return self._socket()

    def stop(self) -> None:
        """Stop it permanently; returns when it has ended."""
        self._over = True
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # also ends one that is starting
        with self._lock:
            self._end()

    def _is_up(self) -> bool:
        return self.up.is_set() and not self._has_ended()

    def _has_ended(self) -> bool:
        """Whether the tether and its children have ended, which closes the tether's output. The
        process started here has detached from it."""
        process = self._process
        return process is None or process.stdout is None or process.stdout.read() == b""

    def _socket(self) -> str:
        # Through /proc, because a socket's path is limited to 107 bytes.
        return f"/proc/self/fd/{self._fd}/socket"

    def _begin(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for left in self._folder.glob("run-*"):
            shutil.rmtree(left, ignore_errors=True)
        if self._log.exists():
            self._log.replace(f"{self._log}.old")
        self.before_start()
        # A new folder for each start: a server that is ending still uses its own.
        own = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        self._fd = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
        tether = ("-P", "-m", "allranks.agent.processes.end_with_parent", str(_GRACE), str(own))
        shell = ("/bin/sh", "-c", 'exec "$@" >>server.log 2>&1', self._folder.name)
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *tether, *shell, *self.command(f"{own.name}/socket")],
                cwd=self._folder,
                env={**self._inherited(), **self.environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def _inherited(self) -> dict[str, str]:
        kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
        return {name: os.environ[name] for name in kept if name in os.environ}

    def _wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and not self._over:
            try:
                status, _ = self._send("GET", self.health, timeout=5.0)
                if status == 200:
                    return
            except OSError:
                pass
            if self._has_ended():
                break
            time.sleep(0.1)
        self._end()
        lines = last_lines(self._log)
        raise self._trouble(lines[-1] if lines else "it printed nothing")

    def _trouble(self, why: str) -> ServerError:
        message = f"cannot start {self.title}: {why}"
        return ServerError(message, where=str(self._log), hint=self.hint())

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _end(self) -> None:
        self.up.clear()
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            os.set_blocking(process.stdout.fileno(), True)
            process.stdout.read()  # until the tether has ended
            process.stdout.close()
            process.wait()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # ------------------------------------------------------------ requests

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request; returns status and body. Raises OSError without an answer; the next
        caller restarts the server if needed."""
        try:
            return self._send(method, path, body)
        except OSError:
            self.lost()
            raise

    def lost(self) -> None:
        """Check the server after a failure; if it is down, the next caller restarts it."""
        with contextlib.suppress(OSError):
            if self._send("GET", self.health, timeout=5.0)[0] == 200:
                return
        self.up.clear()

    def _send(
        self, method: str, path: str, body: bytes | None = None, timeout: float = ANSWER
    ) -> tuple[int, bytes]:
        connection = _Connection(self._socket(), timeout)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error) or type(error).__name__) from error
        finally:
            connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
