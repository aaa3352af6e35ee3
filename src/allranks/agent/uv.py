"""Running uv: its output to a log and line by line to who listens, its errors as sentences."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from allranks.agent import uv_words
from allranks.errors import AllranksError

Say = Callable[[str], None]
# Seconds for a question about what else there is, when something could not be had.
_A_QUESTION = 30.0


class Wait(Protocol):
    """Returns when the descriptor is readable or the time is over; raises what ends the waiting."""

    def __call__(self, fd: int | None = None, seconds: float | None = None) -> None: ...


class Uv:
    """The program ``path``, run with ``env`` alone. ``lock`` is held by it, too: should we be
    killed, nobody else begins while it still writes."""

    def __init__(
        self, path: str, env: Mapping[str, str], log: BinaryIO, lock: int, wait: Wait, say: Say
    ) -> None:
        self._path, self._env, self._log = path, env, log
        self._lock, self._wait, self._say = lock, wait, say

    def venv(self, goal: Path, python: str) -> None:
        """Make an empty environment. Raises AllranksError, and what ``wait`` raises."""
        said = self._run("venv", "--relocatable", "--python", python, str(goal))
        if said is None:
            return
        if uv_words.lacks_python(said):
            raise uv_words.no_python(python, self._installed())
        raise uv_words.failure(said)

    def install(self, goal: Path, requirements: Path, constraints: Path, backend: str) -> None:
        """Install what the file lists; ``backend``: which builds of PyTorch. Raises as ``venv``."""
        words = ["--requirements", str(requirements), "--constraints", str(constraints)]
        words += [f"--torch-backend={backend}"] if backend else []
        said = self._run("pip", "install", "--python", str(goal), *words)
        if said is None:
            return
        lacking = uv_words.missing(said)
        if lacking is None:
            raise uv_words.failure(said)
        options = [row for row in requirements.read_text().splitlines() if row.startswith("-")]
        nearest = self._nearest(goal, lacking, options)
        raise uv_words.not_installable(lacking, configuration(goal)["version_info"], nearest)

    def _run(self, *words: str) -> list[str] | None:
        """What it said when it failed; None when it did not."""
        try:
            child = subprocess.Popen(
                [self._path, *words],
                env=self._env,
                stdin=subprocess.DEVNULL,
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
            for line in self._lines(child):
                said.append(line)
                if text := uv_words.told(line):
                    self._say(text)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        return said if child.wait() != 0 else None

    def _lines(self, child: subprocess.Popen[bytes]) -> Iterator[str]:
        assert child.stdout is not None
        rest = b""
        with child.stdout:
            while True:
                self._wait(child.stdout.fileno())
                piece = os.read(child.stdout.fileno(), 65536)
                self._log.write(piece)
                self._log.flush()
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
                if not piece:
                    break
        yield rest.decode(errors="replace")

    def _installed(self) -> list[str]:
        """The versions of Python that it finds on this machine."""
        told = self._asked("python", "list", "--only-installed", "--output-format", "json")
        try:
            return [each["version"] for each in json.loads(told)]
        except (ValueError, KeyError, TypeError):
            return []

    def _nearest(self, goal: Path, lacking: uv_words.Missing, options: Sequence[str]) -> str:
        """The lowest version above it that has a wheel, or else the highest below; empty: none.
        ``options`` say where to look."""
        words = ["pip", "compile", "--quiet", "--python", str(goal), "--no-deps"]
        words += ["--only-binary", ":all:", "--no-header", "--no-annotate"]
        for sign, lowest in ((">", ["--resolution", "lowest-direct"]), ("<", [])):
            asks = "\n".join([*options, f"{lacking.name}{sign}{lacking.version}"])
            told = self._asked(*words, *lowest, "-", asks=asks)
            if "==" in told:
                return told.strip().splitlines()[-1].partition("==")[2]
        return ""

    def _asked(self, *words: str, asks: str = "") -> str:
        try:
            done = subprocess.run(
                [self._path, *words],
                env=self._env,
                input=asks,
                capture_output=True,
                text=True,
                timeout=_A_QUESTION,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout


def configuration(environment: Path) -> dict[str, str]:
    """The keys of an environment's ``pyvenv.cfg``."""
    lines = (environment / "pyvenv.cfg").read_text().splitlines()
    return {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in lines)}
