"""MLflow's own server, as one child of ours: started when somebody first speaks to it.

It listens on a socket in a folder of the home's owner, and nowhere else: it knows no token and asks
nobody for one. Its tether ends it with us, however we end. It is never imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from allranks.agent.processes.ranks import last_lines
from allranks.errors import ServerError
from allranks.settings import Home

log = logging.getLogger("allranks.mlflow")

# Names a Python that has MLflow, where the server's own is to be kept without it.
PYTHON = "ALLRANKS_MLFLOW_PYTHON"
# Seconds: how long it may take to start (its packages are many, disks slow), to answer what we ask
# ourselves, and to end.
_PATIENCE = 180.0
ANSWER = 60.0
_GRACE = 3.0


def python() -> str | None:
    """The Python that has MLflow with its server; None: there is none."""
    given = os.environ.get(PYTHON)
    if given:
        return given
    # `mlflow-skinny` is called mlflow, too, and has no server.
    has = find_spec("mlflow") is not None and find_spec("flask") is not None
    return sys.executable if has else None


class Child:
    """At most one at a time. Safe to use from several threads; ``come`` is for the event loop.
    ``anew`` is called before one starts that has no database yet."""

    def __init__(self, home: Home, python: str, anew: Callable[[], None]) -> None:
        self._folder, self._python, self._anew = home.mlflow, python, anew
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._fd: int | None = None
        self._coming: asyncio.Task[str] | None = None
        self._over = False
        # Set while it answers: who has only something to tell it waits for that.
        self.up = threading.Event()

    async def come(self) -> str:
        """Where it listens, once it does; all who ask meanwhile wait for the one start."""
        if self._is_up():
            return self._socket()
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(asyncio.to_thread(self.start))
        return await asyncio.shield(self._coming)

    def start(self) -> str:
        """Where it listens; started if it is not up. Raises ServerError when it cannot be."""
        with self._lock:
            if self._is_up():
                return self._socket()
            if self._over:
                raise ServerError("the server is ending")
            self._end()
            try:
                self._begin()
            except OSError as error:
                raise self._trouble(error.strerror or str(error)) from error
            self._wait()
            self.up.set()
            return self._socket()

    def stop(self) -> None:
        """End it for good; returns when nothing of it runs."""
        self._over = True
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # one that is just starting ends by that, too
        with self._lock:
            self._end()

    def _is_up(self) -> bool:
        return self.up.is_set() and not self._has_ended()

    def _has_ended(self) -> bool:
        """The tether's output is closed once it, and all it holds, has ended; the process that was
        started has long left it to itself."""
        process = self._process
        return process is None or process.stdout is None or process.stdout.read() == b""

    def _socket(self) -> str:
        # A socket's path has 107 bytes at most, a home's has not.
        return f"/proc/self/fd/{self._fd}/socket"

    def _begin(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for left in self._folder.glob("run-*"):
            shutil.rmtree(left, ignore_errors=True)
        if self._log.exists():
            self._log.replace(f"{self._log}.old")
        if not (self._folder / "mlflow.db").exists():
            self._anew()
        # Another for each start: one that is ending still has its own.
        own = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        self._fd = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
        tether = [
            sys.executable,
            "-P",
            "-m",
            "allranks.agent.processes.end_with_parent",
            str(_GRACE),
            str(own),
        ]
        with self._log.open("ab") as said:
            self._process = subprocess.Popen(
                [*tether, *self._words(own.name)],
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def _words(self, own: str) -> list[str]:
        # All paths are relative: nothing of a home's name has to be quoted for anybody. The host
        # and port are what its own checks compare with; it listens on the socket alone.
        return [
            *("/bin/sh", "-c", 'exec "$@" >>server.log 2>&1', "mlflow"),
            *(self._python, "-P", "-m", "mlflow", "server", "--workers", "1"),
            *("--host", "127.0.0.1", "--port", "5000", "--uvicorn-opts", f"--uds {own}/socket"),
            *("--backend-store-uri", "sqlite:///mlflow.db"),
            *("--serve-artifacts", "--artifacts-destination", "./artifacts"),
        ]

    def _environment(self) -> dict[str, str]:
        kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "ALLRANKS_MLFLOW": str(self._folder),  # whose it is, for who finds it
            "PYTHONSAFEPATH": "1",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "GIT_PYTHON_REFRESH": "quiet",
        }

    def _wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and not self._over:
            try:
                status, _ = self._asked("GET", "/health", timeout=5.0)
                if status == 200:
                    return
            except OSError:
                pass
            if self._has_ended():
                break
            time.sleep(0.1)
        self._end()
        said = last_lines(self._log)
        raise self._trouble(said[-1] if said else "it said nothing")

    def _trouble(self, why: str) -> ServerError:
        hint = "the whole is in that file; `python -m mlflow server` tells whether it works at all"
        return ServerError(
            f"MLflow's server cannot be started: {why}", where=str(self._log), hint=hint
        )

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
            process.stdout.read()  # to its end, which is the tether's
            process.stdout.close()
            process.wait()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # ------------------------------------------------------------ asking it something

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of its answer. Raises OSError where it gives none: it is down then, or
        it is started anew by who asks next."""
        try:
            return self._asked(method, path, body)
        except OSError:
            self.lost()
            raise

    def lost(self) -> None:
        """It did not answer: who asks next finds out whether it is to be started again."""
        with contextlib.suppress(OSError):
            if self._asked("GET", "/health", timeout=5.0)[0] == 200:
                return
        self.up.clear()

    def _asked(
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
