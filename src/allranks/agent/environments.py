"""Virtual environments of jobs: made once where they lie, then found by what they hold.

Each has a folder named by the content of its recipe, below one that all nodes of a disk share.
Whoever comes first makes it, under a lock; the others wait, and see the same log. It is there once
its ``READY`` file is, the last to be written: what a killed builder left is made anew.
Jobs never write to it: each attempt gets a layer of its own in front.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks import locks
from allranks.agent import pip_conf, uv_words
from allranks.agent.uv import Say, Uv, Wait, configuration
from allranks.errors import AllranksError
from allranks.plan.plan import Recipe

READY = "allranks.json"
# Seconds between two looks whether another has made it.
_LOOK = 0.1
# What a making finds of the environment it is asked for in, beside what is uv's and pip's own.
_HANDED_ON = ("HOME", "USER", "PATH", "LANG", "TMPDIR", "NETRC", "CC", "CXX", "CUDA_HOME")
_TOOLS = ("UV_", "XDG_", "SSL_CERT_")


class Made(NamedTuple):
    """An environment that is there: its folder, its Python, the version of each package in it."""

    folder: Path
    python: str
    packages: Mapping[str, str]


def digest(recipe: Recipe) -> str:
    """The name of what it asks for: what is called differently, or is only told, is the same."""
    content = [recipe.python, recipe.requirements, recipe.constraints, recipe.torch_backend]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:20]


class Shelf:
    """The folder that environments lie in. ``environ`` is of who asks for one: where Python, uv's
    cache and the settings of pip and uv are found."""

    def __init__(self, folder: Path, uv: str, environ: Mapping[str, str]) -> None:
        self._folder, self._uv, self._environ = folder, uv, environ

    def place(self, recipe: Recipe) -> Path:
        """Where it lies, or would. An environment is for one kind of machine; one whose recipe
        names no Python is of the first on PATH. Raises AllranksError when there is none."""
        machine = [os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or ""]
        if not recipe.python:
            machine.append(self._python())
        known = hashlib.sha256("\n".join(machine).encode()).hexdigest()[:8]
        return self._folder / f"{digest(recipe)}-{known}"

    def log(self, recipe: Recipe) -> Path:
        """What its making has printed so far."""
        return self.place(recipe).with_suffix(".log")

    def find(self, recipe: Recipe) -> Made | None:
        """The environment, if it is there and its Python still is."""
        return _found(self.place(recipe))

    def provide(self, recipe: Recipe, wait: Wait, say: Say) -> Made:
        """The environment, made if need be; ``say`` hears what is worth telling of that.

        Raises AllranksError with why it cannot be made, and what ``wait`` raises.
        """
        goal, others = self.place(recipe), None
        while (found := _found(goal)) is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = locks.take(goal.with_suffix(".lock"))
            if lock is None:
                others = others or _Others(self.log(recipe), say)
                others.hand_on()
                wait(seconds=_LOOK)
                continue
            try:
                if _found(goal) is None:
                    self._make(recipe, goal, lock, wait, say)
            finally:
                os.close(lock)
        with contextlib.suppress(OSError):
            os.utime(goal / READY)  # in use: what was not for the longest time goes first
        return found

    def _make(self, recipe: Recipe, goal: Path, lock: int, wait: Wait, say: Say) -> None:
        began = time.time()
        shutil.rmtree(goal, ignore_errors=True)
        pips = pip_conf.for_uv(self._environ)
        lists = [goal.with_suffix(suffix) for suffix in (".txt", ".limits.txt")]
        try:
            with self.log(recipe).open("wb") as log:
                uv = Uv(self._uv, self._variables(pips.variables), log, lock, wait, say)
                uv.venv(goal, recipe.python or self._python())
                bundled = _bundled_pip(goal)
                wanted = uv_words.lines(recipe, bundled, pips.no_index)
                lists[0].write_text("".join(f"{line}\n" for line in wanted))
                lists[1].write_text("".join(f"{line}\n" for line in recipe.constraints))
                # A site that names its own indexes has chosen what builds they hold.
                backend = "" if pips.own_index else recipe.torch_backend
                uv.install(goal, lists[0], lists[1], backend)
            about = {
                "python": configuration(goal)["version_info"],
                "packages": _packages(goal),
                "asked": [recipe.python, *recipe.requirements],
                "seconds": round(time.time() - began, 3),
            }
            beside = goal / f"{READY}.new"
            beside.write_text(json.dumps(about))
            beside.replace(goal / READY)
        except BaseException:
            shutil.rmtree(goal, ignore_errors=True)
            raise
        finally:
            for each in lists:
                each.unlink(missing_ok=True)

    def _variables(self, pips: Mapping[str, str]) -> dict[str, str]:
        own = {
            name: value
            for name, value in self._environ.items()
            if name in _HANDED_ON or name.startswith(_TOOLS) or name.lower().endswith("_proxy")
        }
        # Who has told uv itself is heard before who has told pip.
        return {**pips, **own, "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}

    def _python(self) -> str:
        """The first Python on PATH; of a virtual environment, the one behind it."""
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
                if text := uv_words.told(line.decode(errors="replace")):
                    self._say(text)


def _found(folder: Path) -> Made | None:
    try:
        told = json.loads((folder / READY).read_text())
        # The Python it was made of may have been taken away.
        os.stat(folder / "bin" / "python")
        return Made(folder, told["python"], told["packages"])
    except (OSError, ValueError, KeyError):
        return None


def _bundled_pip(environment: Path) -> str | None:
    """The folder with the pip that Python itself brings, for where no index can be asked."""
    home = Path(configuration(environment).get("home", "/nonexistent"))
    found = next(home.parent.glob("lib/python3*/ensurepip/_bundled/pip-*.whl"), None)
    return str(found.parent) if found else None


def _packages(environment: Path) -> dict[str, str]:
    """Every distribution and its version, read off its files: nothing runs."""
    found = {}
    for each in environment.glob("lib/python3*/site-packages/*.dist-info"):
        name, _, version = each.name.removesuffix(".dist-info").rpartition("-")
        found[name] = version
    return dict(sorted(found.items()))
