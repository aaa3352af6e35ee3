"""Run uv: log its output, report progress, and explain its errors."""

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

from allranks.agent.environments import source_builds, uv_messages
from allranks.agent.environments.conflicts import Conflict, Conflicting, parent_of
from allranks.errors import OUT_OF_MEMORY, AllranksError
from allranks.masking import without_credentials

# Resolves requirements from the standard input, and prints them.
_COMPILE = ("pip", "compile", "--quiet", "--no-header", "--no-annotate")
# Seconds to wait beyond the time of a build, so that it is over for certain.
_TICK = 0.05

Say = Callable[[str], None]


class Wait(Protocol):
    """Returns when the descriptor is readable or the time is over; may raise to stop waiting."""

    def __call__(self, fd: int | None = None, seconds: float | None = None) -> None: ...


class Done(NamedTuple):
    """The exit code of uv and the lines it printed, without passwords."""

    code: int
    output: Sequence[str]


class Uv:
    """Runs uv at ``path`` in ``folder`` with the variables ``env``. Output goes to ``log``. uv
    inherits the descriptor ``lock``, so that the lock holds until uv ends even if we are killed.
    With ``allow_builds``, packages may be built from source however long that takes. Every method
    raises AllranksError, and what ``wait`` raises."""

    # Arguments that create an empty environment.
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
        allow_builds: bool = False,
    ) -> None:
        self._path, self._env, self._folder, self._log = path, env, folder, log
        self._lock, self._wait, self._say = lock, wait, say
        self._allow_builds = allow_builds
        self._clock = source_builds.BuildClock(None if allow_builds else source_builds.LIMIT)

    def venv(self, path: Path, python: str) -> None:
        """Create an empty environment."""
        done = self._run(*self.empty, "--python", python, str(path))
        if done.code == 0:
            return
        if uv_messages.lacks_python(done.output):
            raise Conflicting(uv_messages.no_python(python, self._installed()))
        raise uv_messages.failure(done.output, str(self._log))

    def find(self, python: str) -> str:
        """The path of a Python."""
        done = self._run("python", "find", python)
        if done.code != 0:
            raise Conflicting(uv_messages.no_python(python, self._installed()))
        return next((line for line in reversed(done.output) if line.startswith("/")), python)

    def install(self, path: Path, requirements: Path, backend: str) -> None:
        """Install a requirements file; ``backend``: uv's torch backend, or ''."""
        rows = requirements.read_text().splitlines()
        if sources := self._without_wheel(path, rows, rows):
            names = ", ".join(row.partition(" --")[0] for row in sources)
            self._say(f"builds the environment: from source, for want of a wheel: {names}")
        words = ["pip", "install", "--python", str(path), "--requirements", str(requirements)]
        words += self._options(rows, backend)
        self._raise_for(self._run(*words), path, rows, rows)

    def install_exact(self, path: Path, requirements: Path, backend: str) -> str:
        """Install a requirements file that lists all packages; ``backend`` as in ``install``.
        Returns the one used: '' if its index cannot be reached."""
        rows = requirements.read_text().splitlines()
        words = ["pip", "install", "--python", str(path), "--no-deps"]
        words += ["--requirements", str(requirements)]
        done = self._run(*words, *self._options(rows, backend))
        if done.code != 0 and backend and uv_messages.lacks_torch_index(done.output):
            self._say("builds the environment: PyTorch's own index cannot be reached")
            backend = ""
            done = self._run(*words, *self._options(rows, backend))
        if done.code != 0:
            self._without_wheel(path, rows, rows)  # names all that cannot be had
        self._raise_for(done, path, rows, rows)
        return backend

    def uninstall(self, path: Path, names: Sequence[str]) -> None:
        """Remove packages."""
        done = self._run("pip", "uninstall", "--python", str(path), *names)
        if done.code != 0:
            raise uv_messages.failure(done.output, str(self._log))

    def check(self, path: Path, rows: Sequence[str], written: Sequence[str], backend: str) -> None:
        """Raise the error of the first of ``rows`` that cannot be installed: resolve all, and build
        those without a wheel. ``written``: the lines they replace."""
        sources = self._without_wheel(path, rows, written)
        words = [*_COMPILE, "--python", str(path), *self._options(rows, backend), "-"]
        self._raise_for(self._run(*words, asks="\n".join(rows)), path, rows, written)
        if sources:
            options = [row for row in rows if row.startswith("-")]
            asks = "\n".join([*options, *sources])
            install = ["pip", "install", "--python", str(path), "--no-deps", "--requirements", "-"]
            self._raise_for(self._run(*install, asks=asks), path, rows, written)

    def _options(self, rows: Sequence[str], backend: str) -> list[str]:
        wheels = [] if self._allow_builds else source_builds.wheels_only(rows)
        return [*wheels, *([f"--torch-backend={backend}"] if backend else [])]

    def _without_wheel(
        self, path: Path, rows: Sequence[str], written: Sequence[str]
    ) -> Sequence[str]:
        """The pinned ``rows`` to build from source. Raises Conflicting with all that cannot be, or
        that would take long and may not."""
        options = [row for row in rows if row.startswith("-")]
        pins = source_builds.pins(rows)
        words = [*_COMPILE, "--python", str(path), "--no-deps", "--only-binary", ":all:", "-"]
        sources: list[str] = []
        conflicts: list[Conflict] = []
        while pins:
            done = self._run(*words, asks="\n".join([*options, *pins]))
            lacking = uv_messages.missing(done.output) if done.code else None
            if lacking is None:
                break
            without = [row for row in pins if uv_messages.pinned(lacking.name, [row])]
            if not without:
                break
            pins = [row for row in pins if row not in without]
            nearest = self._nearest(path, lacking, rows)
            if lacking.has_source and (self._allow_builds or not nearest.is_compiled):
                sources += without
            else:
                conflicts.append(self._conflict(lacking, nearest, path, written))
        if conflicts:
            raise Conflicting(*conflicts)
        return sources

    def _conflict(
        self,
        lacking: uv_messages.Missing,
        nearest: uv_messages.Nearest,
        path: Path,
        written: Sequence[str],
        parent: str = "",
    ) -> Conflict:
        python = configuration(path)["version_info"]
        return uv_messages.not_installable(lacking, written, python, nearest.version, parent)

    def _raise_for(
        self, done: Done, path: Path, rows: Sequence[str], written: Sequence[str]
    ) -> None:
        """Raise the error of a failed run for ``rows``, in terms of the lines ``written``."""
        if done.code == 0:
            return
        lacking = uv_messages.missing(done.output)
        if lacking is None and (other := uv_messages.disagreement(done.output, rows, written)):
            raise Conflicting(other)
        if lacking is None:
            raise uv_messages.failure(done.output, str(self._log))
        nearest = self._nearest(path, lacking, rows)
        parent = parent_of(lacking.name, "\n".join(done.output))
        raise Conflicting(self._conflict(lacking, nearest, path, written, parent))

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
            raise not_started(self._path or "uv", error.strerror) from None
        output = []
        try:
            if child.stdin is not None:
                with child.stdin:
                    child.stdin.write(asks.encode())
            for line in self._lines(child):
                if not line.startswith(uv_messages.LOGGED):
                    output.append(line)
                if text := uv_messages.progress(line):
                    self._say(text)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        if (code := child.wait()) < 0:
            name = signal.Signals(-code).name
            raise AllranksError(f"uv was killed by {name}", hint=OUT_OF_MEMORY)
        return Done(code, output)

    def _lines(self, child: subprocess.Popen[bytes]) -> Iterator[str]:
        assert child.stdout is not None
        rest, piece = b"", b"-"
        with child.stdout, self._log.open("a", errors="replace") as log:
            while piece:
                remaining = self._clock.remaining()
                self._wait(child.stdout.fileno(), remaining and remaining + _TICK)
                self._clock.check()
                piece = os.read(child.stdout.fileno(), 65536)
                *lines, rest = (rest + piece).split(b"\n")
                if not piece and rest:
                    lines = [rest]
                for raw in lines:
                    line = without_credentials(raw.decode(errors="replace"))
                    log.write(f"{line}\n")
                    log.flush()
                    self._clock.note(line)
                    yield line

    def _installed(self) -> list[str]:
        """The versions of Python on this machine."""
        words = ("python", "list", "--only-installed", "--output-format", "json")
        answer = next((line for line in self._run(*words).output if line.startswith("[")), "[]")
        try:
            return [python["version"] for python in json.loads(answer)]
        except (ValueError, KeyError, TypeError):
            return []

    def _nearest(
        self, path: Path, lacking: uv_messages.Missing, rows: Sequence[str]
    ) -> uv_messages.Nearest:
        """The lowest newer version with a wheel, or else the highest older one, if any."""
        options = [row for row in rows if row.startswith("-")]
        words = ["pip", "compile", "--quiet", "--python", str(path), "--no-deps"]
        words += ["--only-binary", ":all:", "--format", "pylock.toml"]
        for sign, lowest in ((">", ["--resolution", "lowest-direct"]), ("<", [])):
            asks = "\n".join([*options, f"{lacking.name}{sign}{lacking.version}"])
            done = self._run(*words, *lowest, "-", asks=asks)
            nearest = uv_messages.nearest(done.output)
            if done.code == 0 and nearest.version:
                return nearest
        return uv_messages.Nearest()


def not_started(path: str, reason: object) -> AllranksError:
    return AllranksError(
        f"cannot start uv, which builds environments: {reason}",
        where=path,
        hint="install it on the node's PATH: pip install uv",
    )


def program(preferred: str, path: str | None) -> str:
    """The path of uv: the server's if this machine has it, or the first on PATH."""
    if os.access(preferred, os.X_OK):
        return preferred
    return shutil.which("uv", path=path) or preferred or "uv"


def configuration(environment: Path) -> dict[str, str]:
    """The keys of an environment's ``pyvenv.cfg``."""
    lines = (environment / "pyvenv.cfg").read_text().splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
