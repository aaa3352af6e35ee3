"""The router's process: it goes on while the server is away, and the next server finds it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from allranks import file_locks
from allranks.agent.processes.ranks import last_lines
from allranks.errors import ServerError
from allranks.serve.table import FORMAT
from allranks.settings import read_json
from allranks.unix_sockets import connect

# Seconds for its start, for an answer, and for its end.
_START, _ANSWER, _END = 20.0, 5.0, 35.0


class RouterProcess:
    """``folder``: its log, its lock and its sockets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sockets = folder / "sockets"
        self._connection: socket.socket | None = None
        # Kept so that its end is noticed by the system, where this process has started it.
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str | None:
        """Where it listens, as `http://HOST:PORT`; None if it does not run."""
        data = self._data()
        return f"http://{data['host']}:{data['port']}" if data else None

    @property
    def front(self) -> int | None:
        """The port for other machines, if there is one."""
        return self._data().get("front")

    def _data(self) -> dict[str, Any]:
        """What it says of itself; empty if it does not run."""
        data = read_json(self._folder / "address", dict)
        return data if file_locks.is_held(self._folder / "lock") else {}

    def _ensure(self, port: int) -> str:
        """Start it unless it runs, at ``port`` if that is free; returns its address. One that does
        not understand our tables is replaced. Raises ServerError."""
        if (address := self.address) is not None:
            if self._data().get("format") == FORMAT:
                return address
            self.end()
        if self._process is not None:
            self._process.poll()
        self.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = self._folder / "router.log"
        words = ("-P", "-m", "allranks.serve", "--folder", str(self._folder), "--port", str(port))
        with log.open("ab") as file:
            process = subprocess.Popen(
                (sys.executable, *words),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        until = time.monotonic() + _START
        while time.monotonic() < until and process.poll() is None:
            if (address := self.address) is not None:
                self._process = process
                return address
            time.sleep(0.02)
        process.kill()  # else the next try starts another one beside it
        process.wait()
        lines = last_lines(log)
        why = lines[-1] if lines else "it printed nothing"
        raise ServerError(f"cannot start the router: {why}", where=str(log))

    def exchange(self, order: Any, port: int) -> tuple[Any, int]:
        """Send an order to the router, started at ``port`` unless it runs. Returns the state of all
        deployments, and its port. Raises OSError and ServerError."""
        address = self._ensure(port)
        try:
            counts = self._exchange(order)
        except (OSError, ValueError):
            self._close()
            counts = self._exchange(order)
        return counts, int(address.rpartition(":")[2])

    def _exchange(self, order: Any) -> Any:
        if self._connection is None:
            self._connection = connect(self._folder / "control", _ANSWER)
        self._connection.sendall(json.dumps(order).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            piece = self._connection.recv(1 << 16)
            if not piece:
                raise ConnectionError("the router has ended")
            data += piece
        return json.loads(data)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Let it go on alone."""
        self._close()

    def end(self) -> None:
        """End it; returns when it has ended: it answers running requests first."""
        pid, lock = self._data().get("pid"), self._folder / "lock"
        if pid is None:
            return
        with contextlib.suppress(OSError):
            self._exchange({"stop": True})
        self._close()
        until = time.monotonic() + _END
        while file_locks.is_held(lock):
            if time.monotonic() > until:
                if file_locks.has_open(pid, lock):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        if self._process is not None:
            self._process.wait()
            self._process = None
