"""The process that has imported the modules."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable

from .ending import Ending
from .forkable import Refused, expect_forkable, printed_by
from .job_server import JobServer
from .later_imports import related
from .processes import LIBC, SET_CHILD_SUBREAPER, SET_PDEATHSIG, Wakeup, below, end_with
from .script import Script
from .wire import listen, send

# Seconds in which a refusal is told to those who wait for the imports.
_REFUSING = 2.0


class Server:
    """Serves until it is idle. ``serve`` returns in each rank with what that runs."""

    def __init__(
        self, modules: list[str], folder: str, key: str, idle: float, most: int, attempt: str
    ) -> None:
        self.modules, self.idle, self._most = modules, idle, most
        self._attempt = f"{attempt}/"
        self.base = os.path.join(folder, key)
        self.printed = b""
        self._refused = ""
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self._tried: set[str] = set()
        self._children: set[int] = set()
        self._orphans = False
        self._successor = -1

    def serve(self) -> Script | None:
        self._lock = os.open(f"{self.base}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None  # another server was faster
        self._write_pid()
        self._listener = listen(f"{self.base}.sock")
        self._wakeup = Wakeup()
        self._ending = Ending()
        LIBC.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # torch.cuda.is_available() then asks NVML: CUDA, once initialized, does not survive a fork.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        try:
            self.printed = self._printed_by_importing([*self.modules, *self._learned()])
            expect_forkable()
        except Refused as error:
            self._refused = str(error)
        except BaseException as error:
            self._refused = f"{type(error).__name__}: {error}"
        self._settle()
        return self._loop()

    def _loop(self) -> Script | None:
        since = time.monotonic()
        while True:
            left = since + (_REFUSING if self._refused else self.idle) - time.monotonic()
            idle = left <= 0 and not self._children
            if idle or self._orphans:
                # What the imports started, and may hold our lock, or what a job server left.
                self._orphans = self._end_others()
                if idle and not self._orphans:
                    os.unlink(f"{self.base}.sock")
                    return None
            look = [self._listener.fileno(), self._wakeup.fd]
            look += [self._successor] if self._successor >= 0 else []
            if self._orphans:
                left = 1.0
            elif self._children:
                left = max(1.0, left)
            ready, _, _ = select.select(look, [], [], left)
            if self._wakeup.fd in ready and self._reap():
                since = time.monotonic()
                self._learn()
            if self._successor in ready:
                if os.read(self._successor, 1):
                    return None
                os.close(self._successor)
                self._successor = -1
                self._write_pid()  # it may have written its own before it died
            if self._listener.fileno() in ready:
                try:
                    connection, _ = self._listener.accept()
                except BlockingIOError:
                    continue  # a successor has it
                os.utime(self._lock)  # the time of its last use
                with connection:
                    pid = self._fork_job_server(connection)
                    if pid == 0:
                        return JobServer(self, connection).serve()
                del connection  # a successor would take it for one of the modules' own
                if self._refused == "stale":
                    return None

    def _reap(self) -> bool:
        """Reap children. Return whether one was a job server or successor. A killed one leaves its
        orphans to us."""
        ended = dict(self._wakeup.ended())
        ours = self._children & ended.keys()
        self._children -= ours
        self._orphans = self._orphans or any(ended[pid] for pid in ours)
        return bool(ours)

    def _end_others(self) -> bool:
        """SIGKILL all descendants but job servers, a successor, and what is below them. Return
        whether there were any: they may have forked meanwhile, or take long to end."""
        others = [*below(os.getpid(), self._children)]
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return bool(others)

    def _fork_job_server(self, connection: socket.socket) -> int:
        """Return its process id: 0 in the job server itself, -1 if it is refused."""
        if not self._refused and any(_stamp(f) != stamp for f, stamp in self._stamps.items()):
            self._refused = "stale"
            os.unlink(f"{self.base}.sock")
        if self._refused:
            send(connection, {"refused": self._refused})
            return -1
        pid = os.fork()
        if pid:
            self._children.add(pid)
        return pid

    def close(self) -> None:
        """In a job server: close what is the server's alone."""
        self._listener.close()
        self._wakeup.close()
        os.close(self._lock)
        if self._successor >= 0:
            os.close(self._successor)

    def _write_pid(self) -> None:
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d" % os.getpid(), 0)

    def _printed_by_importing(self, names: Iterable[str]) -> bytes:
        me = os.getpid()
        signal.alarm(self._most)  # ends a server whose imports do not end
        try:
            return printed_by(self._import, names, f"{self.base}.printed")
        finally:
            if os.getpid() != me:
                os._exit(0)  # a process that an import forked
            signal.alarm(0)

    def _import(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                importlib.import_module(name)
            except Exception:
                if name in self.modules:
                    raise

    def _settle(self) -> None:
        """Remember which files the modules came from, and get ready to fork cheaply."""
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        for file in (*files, *sys.path):
            # The environment's layer goes with the attempt that started this server.
            if isinstance(file, str) and not file.startswith(self._attempt):
                self._stamps.setdefault(file, _stamp(file))
        gc.collect()
        self._ending.freeze()

    # ------------------------------------------------------------ what modules import later

    def _learned(self) -> list[str]:
        try:
            with open(f"{self.base}.json", encoding="utf-8") as file:
                return list(json.load(file))
        except (OSError, ValueError):
            return []

    def _learn(self) -> None:
        """If ranks have imported more parts of the modules, fork a server that imports them, too,
        and takes over when it has. The imports may fail or start threads; then it just ends."""
        names = [name for name in self._reported() if name not in self._tried]
        self._tried.update(names)
        if not names or self._refused or self._successor >= 0:
            return
        me = os.getpid()
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            self._children.add(pid)
            self._successor = read
            return
        os.close(read)
        end_with(me)  # until it has taken over, only that one can be found and ended
        self._succeed(names, write, me)

    def _reported(self) -> list[str]:
        try:
            os.rename(f"{self.base}.new", f"{self.base}.read")
            with open(f"{self.base}.read", encoding="utf-8") as file:
                names = [name for line in file for name in json.loads(line)]
            os.unlink(f"{self.base}.read")
        except (OSError, ValueError):
            return []
        return [name for name in dict.fromkeys(names) if name not in sys.modules]

    def _succeed(self, names: list[str], write: int, before: int) -> None:
        LIBC.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # a fork is none
        self._wakeup.close()
        self._wakeup = Wakeup()
        self._children.clear()
        try:
            names = related(names, self.modules)
            if not names or self._printed_by_importing(names):
                os._exit(0)
            expect_forkable()
        except BaseException:
            os._exit(0)
        self._remember(names)
        self._settle()
        self._write_pid()
        LIBC.prctl(SET_PDEATHSIG, 0, 0, 0, 0)
        if os.getppid() != before:
            os._exit(0)
        os.write(write, b"+")
        os.close(write)

    def _remember(self, names: list[str]) -> None:
        learned = [name for name in [*self._learned(), *names] if name in sys.modules]
        with open(f"{self.base}.json.new", "w", encoding="utf-8") as file:
            json.dump([*dict.fromkeys(learned)], file)
        os.replace(f"{self.base}.json.new", f"{self.base}.json")


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
