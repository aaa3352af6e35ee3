"""Running uv: its output to a log and line by line to who listens, its errors as sentences."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from allranks.agent.environments import uv_messages
from allranks.agent.environments.conflicts import Conflicting, parent_of
from allranks.errors import AllranksError
from allranks.masking import without_credentials

Say = Callable[[str], None]


class Wait(Protocol):
    """Returns when the descriptor is readable or the time is over; raises what ends the waiting."""

    def __call__(self, fd: int | None = None, seconds: float | None = None) -> None: ...


class Done(NamedTuple):
    """How a run of uv ended, and the lines that it printed, without passwords."""

    code: int
    said: Sequence[str]


class Uv:
    """The program ``path``, run in ``folder`` with ``env`` alone; all that it says goes to ``log``,
    too. ``lock`` is held by it as well: should we be killed, nobody else begins while it still
    writes. All raise AllranksError, and what ``wait`` raises."""

    # How an empty environment is made.
    empty: Sequence[str] = ("venv", "--relocatable")

    def __init__(
        self,
        path: str,
        env: Mapping[str, str],
        folder: Path,
        log: Path,
        lock: int,
        wait: Wait,
        say: Say,
    ) -> None:
        self._path, self._env, self._folder, self._log = path, env, folder, log
        self._lock, self._wait, self._say = lock, wait, say

    def venv(self, goal: Path, python: str) -> None:
        """Make an empty environment."""
        done = self._run(*self.empty, "--python", python, str(goal))
        if done.code == 0:
            return
        if uv_messages.lacks_python(done.said):
            raise Conflicting(uv_messages.no_python(python, self._installed()))
        raise uv_messages.failure(done.said, str(self._log))

    def find(self, python: str) -> str:
        """Where that Python is."""
        done = self._run("python", "find", python)
        if done.code != 0:
            raise Conflicting(uv_messages.no_python(python, self._installed()))
        return next((line for line in reversed(done.said) if line.startswith("/")), python)

    def install(self, goal: Path, requirements: Path, backend: str) -> None:
        """Install what the file lists; ``backend``: which builds of PyTorch."""
        words = ["pip", "install", "--python", str(goal), "--requirements", str(requirements)]
        done = self._run(*words, *([f"--torch-backend={backend}"] if backend else []))
        rows = requirements.read_text().splitlines()
        self._hold(done, goal, rows, rows)

    def check(self, goal: Path, rows: Sequence[str], written: Sequence[str], backend: str) -> None:
        """Raise the error of what cannot be installed of ``rows``, which stand for ``written``:
        resolve all of them, and build those that have no wheel."""
        words = ["pip", "compile", "--quiet", "--python", str(goal)]
        words += ["--no-header", "--no-annotate"]
        more = [f"--torch-backend={backend}"] if backend else []
        self._hold(self._run(*words, *more, "-", asks="\n".join(rows)), goal, rows, written)
        options = [row for row in rows if row.startswith("-")]
        pins = [row for row in rows if "==" in row and row not in options]
        sources: list[str] = []
        while pins:
            asks = "\n".join([*options, *pins])
            done = self._run(*words, "--no-deps", "--only-binary", ":all:", "-", asks=asks)
            lacking = uv_messages.missing(done.said) if done.code else None
            found = [row for row in pins if lacking and uv_messages.pinned(lacking.name, [row])]
            if not found:
                break
            sources += found
            pins = [row for row in pins if row not in found]
        if sources:
            asks = "\n".join([*options, *sources])
            install = ["pip", "install", "--python", str(goal), "--no-deps", "--requirements", "-"]
            self._hold(self._run(*install, asks=asks), goal, rows, written)

    def _hold(self, done: Done, goal: Path, rows: Sequence[str], written: Sequence[str]) -> None:
        """Raise the error of a run that failed for ``rows``, in terms of what was ``written``."""
        if done.code == 0:
            return
        lacking = uv_messages.missing(done.said)
        if lacking is None:
            raise uv_messages.failure(done.said, str(self._log))
        nearest = self._nearest(goal, lacking, rows)
        parent = parent_of(lacking.name, "\n".join(done.said))
        python = configuration(goal)["version_info"]
        raise Conflicting(uv_messages.not_installable(lacking, written, python, nearest, parent))

    def _run(self, *words: str, asks: str = "") -> Done:
        try:
            child = subprocess.Popen(
                [self._path, *words],
                env=self._env,
                cwd=self._folder,
                stdin=subprocess.PIPE if asks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[self._lock],
                process_group=0,
            )
        except OSError as error:
            raise AllranksError(
                f"uv, which makes environments, cannot be started: {error.strerror}",
                where=self._path or "uv",
                hint="install it where the node finds it: pip install uv",
            ) from None
        said = []
        try:
            if child.stdin is not None:
                with child.stdin:
                    child.stdin.write(asks.encode())
            for line in self._lines(child):
                said.append(line)
                if text := uv_messages.told(line):
                    self._say(text)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        if (code := child.wait()) < 0:
            raise AllranksError(
                f"uv, which makes environments, was ended by {signal.Signals(-code).name}",
                hint="the node may have been out of memory: `dmesg` there tells",
            )
        return Done(code, said)

    def _lines(self, child: subprocess.Popen[bytes]) -> Iterator[str]:
        assert child.stdout is not None
        rest, piece = b"", b"-"
        with child.stdout, self._log.open("a", errors="replace") as log:
            while piece:
                self._wait(child.stdout.fileno())
                piece = os.read(child.stdout.fileno(), 65536)
                *whole, rest = (rest + piece).split(b"\n")
                if not piece and rest:
                    whole = [rest]
                for raw in whole:
                    line = without_credentials(raw.decode(errors="replace"))
                    log.write(f"{line}\n")
                    log.flush()
                    yield line

    def _installed(self) -> list[str]:
        """The versions of Python that it finds on this machine."""
        words = ("python", "list", "--only-installed", "--output-format", "json")
        told = next((line for line in self._run(*words).said if line.startswith("[")), "[]")
        try:
            return [each["version"] for each in json.loads(told)]
        except (ValueError, KeyError, TypeError):
            return []

    def _nearest(self, goal: Path, lacking: uv_messages.Missing, rows: Sequence[str]) -> str:
        """The lowest version above it that has a wheel, or else the highest below; empty: none."""
        where = [row for row in rows if row.startswith("-")]
        words = ["pip", "compile", "--quiet", "--python", str(goal), "--no-deps"]
        words += ["--only-binary", ":all:", "--no-header", "--no-annotate"]
        name = f"{lacking.name}=="
        for sign, lowest in ((">", ["--resolution", "lowest-direct"]), ("<", [])):
            asks = "\n".join([*where, f"{lacking.name}{sign}{lacking.version}"])
            done = self._run(*words, *lowest, "-", asks=asks)
            found = [line for line in done.said if line.lower().startswith(name.lower())]
            if done.code == 0 and found:
                return found[0].partition("==")[2].split()[0]
        return ""


def program(servers: str, path: str | None) -> str:
    """The server's own uv where this machine has it, or the first on PATH."""
    if os.access(servers, os.X_OK):
        return servers
    return shutil.which("uv", path=path) or servers or "uv"


def configuration(environment: Path) -> dict[str, str]:
    """The keys of an environment's ``pyvenv.cfg``."""
    lines = (environment / "pyvenv.cfg").read_text().splitlines()
    return {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in lines)}
