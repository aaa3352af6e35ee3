"""A PostgreSQL of the tests' own, from Debian's package: a cluster in a new folder, reached by a
Unix socket in it, and by an address of this machine if a test says so. It can be killed and started
again."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg

from tests.support import until

_QUICK = ("fsync=off", "shared_buffers=16MB", "max_connections=120")
# Nothing in it names a test's home: whose processes are left is told by that.
_CLEAN = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def programs() -> Path | None:
    """The folder of its programs; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class Cluster:
    """``start``, ``kill``; ``database`` makes a new one and says its URL."""

    def __init__(self, folder: Path, address: str = "") -> None:
        self.folder, self._data, self._address = folder, folder / "data", address
        self._process: subprocess.Popen[bytes] | None = None
        # It refuses to run as root.
        self._who = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._who:
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        self._run("initdb", "-A", "trust", "-U", "tester", "-N", "-D", self._data)
        if address:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")

    def start(self) -> None:
        listens = f"listen_addresses={self._address}"
        settings = [word for each in (*_QUICK, listens) for word in ("-c", each)]
        words = ["postgres", "-D", self._data, "-k", self.folder, *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._argv(*words), cwd="/", env=_CLEAN, stdout=log, stderr=log, **self._who
            )
        until(self._answers, seconds=60)

    def kill(self) -> None:
        """SIGKILL to all of it, as when its machine loses power."""
        assert self._process is not None
        everyone = [each := psutil.Process(self._process.pid), *each.children(recursive=True)]
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(20)
        psutil.wait_procs(everyone, timeout=120)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(20)

    def database(self) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://tester:pass-word@/{name}?host={self._address or self.folder}"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, *words: object) -> None:
        done = subprocess.run(self._argv(*words), cwd="/", capture_output=True, **self._who)
        assert done.returncode == 0, done.stderr

    def _argv(self, name: str, *words: object) -> list[str]:
        found = programs()
        assert found is not None
        return [str(found / name), *map(str, words)]


@contextlib.contextmanager
def cluster(address: str = "") -> Iterator[Cluster]:
    """One that runs, and is gone afterwards. A socket's path is short: not in a test's folder."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    made = Cluster(folder, address)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)
