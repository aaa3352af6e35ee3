"""A home of allranks for one benchmark: made for it, and taken down with all that ran in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bench import procs

# How long a process may outlive the server's end before it counts as left over.
_AFTERLIFE = 5.0


class Home:
    """``with Home() as home``: ``home.allranks("run", …)`` is the real command line in it.

    ``work`` is an empty folder to run things in. ``left`` tells, once closed, which processes of
    the home were still there; they are ended then.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="allranks-bench-"))
        self.folder = self.root / "home"
        self.work = self.root / "work"
        self.work.mkdir()
        self.env = procs.environment(ALLRANKS_HOME=str(self.folder))
        self.left: list[str] = []
        self._cli = command()

    def argv(self, *words: str | Path) -> list[str]:
        return [*self._cli, *map(str, words)]

    def allranks(
        self, *words: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line; RuntimeError unless it exits 0."""
        return procs.run(self.argv(*words), cwd=cwd or self.work, env=self.env)

    def told(self, *words: str) -> Any:
        """What the command line says; ``words`` have ``--json`` among them."""
        return json.loads(self.allranks(*words).stdout)

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if self.folder.exists():
                subprocess.run(
                    self.argv("server", "stop"),
                    cwd=self.root,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=120,
                )
        finally:
            self.left = self._ended()
            shutil.rmtree(self.root, ignore_errors=True)

    def _ended(self) -> list[str]:
        until = time.monotonic() + _AFTERLIFE
        while (pids := procs.naming(str(self.folder))) and time.monotonic() < until:
            time.sleep(0.05)
        told = [f"left over: process {pid}, {procs.command_line(pid)}" for pid in pids]
        for pid in pids:
            procs.end(pid)
        return told


def command() -> list[str]:
    """The command line installed beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("allranks")
    found = str(beside) if beside.exists() else shutil.which("allranks")
    if found is None:
        raise SystemExit("there is no allranks beside this Python: pip install -e . first")
    return [found]
