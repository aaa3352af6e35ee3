"""Virtual environments of jobs: made once where they lie, then found by what they hold.

Each has a folder named by the content of its recipe and by all else that decides what it will hold,
below one that all nodes of a disk share. Whoever comes first makes it, beside its place and under a
lock; the others wait, and see the same log. It is put in its place when it is whole, and what is in
a place is never taken away by who makes one. Jobs do not write to it: each attempt gets a layer of
its own in front.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks import file_locks
from allranks.agent.environments import pip_conf, uv_messages
from allranks.agent.environments.conflicts import Conflicting, collect
from allranks.agent.environments.layer import packages_of
from allranks.agent.environments.uv import Say, Uv, Wait, configuration
from allranks.errors import AllranksError
from allranks.masking import without_credentials
from allranks.plan.plan import Recipe

READY = "allranks.json"
# Seconds between two looks whether another has made it.
_LOOK = 0.1
# Of an environment that asks: what would lead uv to another Python, or is for its packages.
_NOT_FOR_UV = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "PIP_")
# uv's variables that say how it works and not what comes of it.
_HOW = ("CACHE_DIR", "HTTP_", "CONCURRENT_", "LINK_MODE", "INSECURE_HOST", "KEYRING", "NO_PROGRESS")
# Where Debian keeps the pip that its Python does not bring.
_DEBIANS = Path("/usr/share/python-wheels")
# The driver of a node's GPUs, by which uv chooses builds of PyTorch.
_DRIVERS = (Path("/sys/module/nvidia/version"), Path("/sys/module/amdgpu/version"))


class Made(NamedTuple):
    """An environment that is there: its folder, its Python, the version of each package in it."""

    folder: Path
    python: str
    packages: Mapping[str, str]


class EnvironmentCache:
    """The folder that environments lie in. ``environ`` is of who asks for one: where Python, uv's
    cache and the settings of pip and uv are found."""

    def __init__(self, folder: Path, uv: str, environ: Mapping[str, str]) -> None:
        self._folder, self._uv, self._environ = folder, uv, environ
        self._pip = pip_conf.for_uv(environ)

    def place(self, recipe: Recipe) -> Path:
        """Where it lies, or would. Raises AllranksError when there is no Python at all."""
        decide = [
            *(recipe.python, recipe.requirements, recipe.constraints, recipe.torch_backend),
            *(os.uname().machine, *self._foundation(recipe), self._pip.lines),
            *sorted(
                (name, without_credentials(value))
                for name, value in self._variables(recipe).items()
                if name.startswith("UV_") and not name[3:].startswith(_HOW)
            ),
        ]
        if recipe.torch_backend == "auto":
            decide += [each.read_text() for each in _DRIVERS if each.exists()]
        return self._folder / hashlib.sha256(json.dumps(decide).encode()).hexdigest()[:24]

    def _foundation(self, recipe: Recipe) -> tuple[str, str]:
        """What of the machine decides which wheels are installed."""
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
        return libc, "" if recipe.python else self._python()

    def log(self, recipe: Recipe) -> Path:
        """What its making has printed so far."""
        return self.place(recipe).with_suffix(".log")

    def find(self, recipe: Recipe) -> Made | None:
        """The environment, if it is there and its Python is."""
        return _any_found(self.place(recipe))

    def provide(self, recipe: Recipe, wait: Wait, say: Say) -> Made:
        """The environment, made if need be; ``say`` hears what is worth telling of that.

        Raises AllranksError with why it cannot be made, and what ``wait`` raises.
        """
        goal, others = self.place(recipe), None
        while (found := _any_found(goal)) is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = file_locks.take(goal.with_suffix(".lock"))
            if lock is None:
                others = others or _Others(goal.with_suffix(".log"), say)
                others.hand_on()
                wait(seconds=_LOOK)
                continue
            try:
                # Another may have made it meanwhile.
                found = _any_found(goal) or self._make(recipe, goal, lock, wait, say)
            finally:
                os.close(lock)
            break
        with contextlib.suppress(OSError):
            os.utime(found.folder / READY)  # in use
        return found

    def _make(self, recipe: Recipe, goal: Path, lock: int, wait: Wait, say: Say) -> Made:
        """Make it beside its place, and put it there."""
        began, log = time.time(), goal.with_suffix(".log")
        log.unlink(missing_ok=True)
        uv = Uv(self._uv, self._variables(recipe), self._folder, log, lock, wait, say)
        python = recipe.python or self._python()
        if goal.exists():
            # Another node made it with a Python that this one has not got, and may be using it.
            python = uv.find(python)
            goal = goal.with_name(f"{goal.name}-{hashlib.sha256(python.encode()).hexdigest()[:8]}")
        beside = self._beside(goal)
        made = beside / "environment"
        try:
            self._fill(recipe, uv, made, python)
            return self._finish(recipe, made, goal, began)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _finish(self, recipe: Recipe, made: Path, goal: Path, began: float, **more: str) -> Made:
        """Mark the environment ``made`` as complete, and put it in its place."""
        about = {
            "recipe": known_by(recipe),
            "python": configuration(made)["version_info"],
            "packages": _packages(made),
            "seconds": round(time.time() - began, 3),
            **more,
        }
        (made / READY).write_text(json.dumps(about))
        # Where a lock is not one for all nodes of a disk, another may have been sooner.
        with contextlib.suppress(OSError):
            made.rename(goal)
        if (found := _found(goal)) is None:
            raise AllranksError(
                "the environment was made, and cannot be found in its place",
                where=str(goal),
                hint="does the disk with ALLRANKS_HOME still answer?",
            )
        return found

    def _fill(self, recipe: Recipe, uv: Uv, made: Path, python: str) -> None:
        """Make the environment in its folder. Raises AllranksError with all that stands against
        it, as far as uv can tell."""
        # A site that names its own indexes has chosen what builds they hold.
        backend = "" if self._pip.own_index else recipe.torch_backend
        try:
            uv.venv(made, python)
            for number, lines in enumerate(self._lines(recipe, made, made.parent)):
                wanted = made.parent / f"requirements-{number}.txt"
                wanted.write_text("".join(f"{line}\n" for line in lines))
                uv.install(made, wanted, backend)
        except Conflicting as first:
            if first.conflict.asked.startswith("python="):
                shutil.rmtree(made, ignore_errors=True)
                try:
                    uv.venv(made, first.conflict.taken)
                except AllranksError:
                    raise first from None
            elif not made.exists():
                raise
            lines = self._lines(recipe, made, made.parent)[0]
            check = functools.partial(uv.check, made, written=lines, backend=backend)
            raise collect(first, lines, check) from None

    def _beside(self, goal: Path) -> Path:
        """An empty folder to make it in; what makers of this host left that were killed is gone."""
        prefix = f"{goal.name}.{os.uname().nodename}."
        for each in self._folder.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(each, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=self._folder, prefix=prefix))

    def _lines(self, recipe: Recipe, made: Path, folder: Path) -> list[tuple[str, ...]]:
        """The requirements files, one after the other."""
        site = [*self._pip.lines]
        if recipe.constraints:
            limits = folder / "constraints.txt"
            limits.write_text("".join(f"{line}\n" for line in recipe.constraints))
            site.append(f"-c {limits}")
        hashed = "UV_REQUIRE_HASHES" in self._variables(recipe)
        found = uv_messages.lines(recipe, site, self._bundled_pip(made), hashed)
        return [found.first, *([found.then] if found.then else [])]

    def _bundled_pip(self, environment: Path) -> str | None:
        """The folder with the pip that Python itself brings, for where no index can be asked."""
        home = Path(configuration(environment).get("home", "/nonexistent"))
        found = [*home.parent.glob("lib/python3*/ensurepip/_bundled/pip-*.whl")]
        found += _DEBIANS.glob("pip-*.whl")
        return str(found[0].parent) if found else None

    def _variables(self, recipe: Recipe) -> dict[str, str]:
        """What uv finds around it: all that who asks has, but what would lead it elsewhere."""
        own = {n: v for n, v in self._environ.items() if not n.startswith(_NOT_FOR_UV)}
        found = {**self._pip.variables, **own, "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
        if uv_messages.names_index(recipe):
            found.pop("UV_DEFAULT_INDEX", None)  # it would be heard instead of the line
        if "UV_CONFIG_FILE" not in found:
            # A project's settings are for who works in it, not for whoever needs the same packages.
            home = Path(own.get("HOME", "/nonexistent"))
            own_file = Path(own.get("XDG_CONFIG_HOME") or home / ".config", "uv/uv.toml")
            there = [each for each in (own_file, Path("/etc/uv/uv.toml")) if each.exists()]
            found |= {"UV_CONFIG_FILE": str(there[0])} if there else {"UV_NO_CONFIG": "1"}
        return found

    def _python(self) -> str:
        """The first Python on PATH; of a virtual environment, the one behind it."""
        told = self._environ.get("ALLRANKS_PYTHON")
        if told and os.access(told, os.X_OK):
            return told
        path = self._environ.get("PATH")
        found = shutil.which("python", path=path) or shutil.which("python3", path=path)
        if found is None:
            raise AllranksError(
                "there is no Python on PATH to make an environment of",
                hint="name a version, as in `python: '3.11'`: uv fetches what is not there",
            )
        return os.path.realpath(found)


class _Others:
    """What another writes to its log, handed on from the start."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say, self._at = path, say, 0
        say("waits for the environment, which another is making")

    def hand_on(self) -> None:
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._at:
                self._at = 0  # it was begun anew
            file.seek(self._at)
            whole, newline, _ = file.read().rpartition(b"\n")
            self._at += len(whole + newline)
            for line in whole.splitlines():
                if text := uv_messages.told(line.decode(errors="replace")):
                    self._say(text)


def known_by(recipe: Recipe) -> str:
    """What all of a recipe's environments have in common, wherever they are made: two recipes that
    differ in this never share one."""
    asked = [recipe.python, recipe.requirements, recipe.constraints, recipe.torch_backend]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _found(folder: Path) -> Made | None:
    try:
        told = json.loads((folder / READY).read_text())
        # Another node's Python may not be here, and one may have been taken away. The Python of
        # an image is seen inside its containers only.
        inside = told.get("python_folder") or folder if "image" in told else None
        os.stat(inside or folder / "bin" / "python")
        return Made(folder, told["python"], told["packages"])
    except (OSError, ValueError, KeyError):
        return None


def _any_found(place: Path) -> Made | None:
    """What is in the place, or beside it for nodes with another Python."""
    several = [place, *sorted(place.parent.glob(f"{place.name}-*"))]
    return next((found for each in several if (found := _found(each)) is not None), None)


def _packages(environment: Path) -> dict[str, str]:
    """Every distribution and its version, read off its files: nothing runs."""
    found = {}
    for each in packages_of(environment).glob("*.dist-info"):
        name, _, version = each.name.removesuffix(".dist-info").rpartition("-")
        found[name] = version
    return dict(sorted(found.items()))
