"""Environments on top of an image: made inside a container of it, and found by later ones.

Each lies among those of the node's other jobs, named by the image, by the content of its recipe and
by all else that decides what it holds. It finds the image's own packages, too. Containers of jobs
see it read-only, at the same path, and each attempt has a layer of its own in front.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from allranks.agent.environments import (
    images,
    installed_frameworks,
    job_environment,
    node_container,
)
from allranks.agent.environments.job_environment import Prepared
from allranks.agent.environments.layer import layer
from allranks.agent.environments.node_container import NodeContainer
from allranks.agent.environments.uv import Say, Wait, configuration, program
from allranks.agent.environments.uv_in_container import UvInside
from allranks.agent.environments.virtual_environments import READY, EnvironmentCache, Made
from allranks.errors import AllranksError
from allranks.plan.environments.activation import activated, kept
from allranks.plan.environments.container import Mount, hostname
from allranks.plan.plan import Container, Recipe, Task

_OURS = str(Path(__file__).absolute().parents[1])
# Variables of uv's that name files and folders of the node.
_NAMES_FILES = re.compile(r"UV_|SSL_|NETRC$|REQUESTS_CA_BUNDLE$")
_PATH = re.compile(r"(?:^|[\s=,]|file://)(?=/[^/\s])")


class _Node(NamedTuple):
    """What containers are given of the node: uv itself, its cache, the Pythons it fetched."""

    uv: str
    cache: Path
    pythons: Path


class ImageShelf(EnvironmentCache):
    """Environments on top of the image of ``container``, which ``identity`` tells from others.
    ``own`` is a folder of the attempt's for the container that makes one, called ``name``."""

    def __init__(
        self,
        folder: Path,
        uv: str,
        environ: Mapping[str, str],
        container: Container,
        identity: str,
        own: Path,
        name: str,
    ) -> None:
        super().__init__(folder, uv, environ)
        self._container, self._identity = container, identity
        self._own, self._name = own, name
        self._running: UvInside | None = None

    def _foundation(self, recipe: Recipe) -> tuple[str, str]:
        return f"image {self._identity}", ""

    def _make(self, recipe: Recipe, goal: Path, lock: int, wait: Wait, say: Say) -> Made:
        began, log = time.time(), goal.with_suffix(".log")
        log.unlink(missing_ok=True)
        say("installs packages on top of the image")
        if goal.exists():
            # Another node made it with a Python that this one has not got, and may be using it.
            goal = goal.with_name(f"{goal.name}-{secrets.token_hex(4)}")
        variables = self._variables(recipe)
        node = _node(self._uv, variables)
        beside = self._beside(goal)
        made = beside / "environment"
        given = [Mount(str(self._own), True), Mount(str(beside), True), Mount(node.uv)]
        given += [Mount(_OURS), Mount(str(node.cache), True)]
        given += [Mount(str(node.pythons), True)]
        given += [Mount(each) for each in _needed(recipe, self._pip.lines, variables)]
        try:
            opened = node_container.start_room(
                self._container, self._name, self._own, _once(given), wait
            )
            with contextlib.closing(opened):
                env = _inside(variables, node, self._own)
                uv = self._running = UvInside(opened, node.uv, env, beside, log, wait, say)
                python = recipe.python or uv.image_python()
                if not python:
                    hint = "name a version, as in `python: '3.11'`: uv fetches what is not there"
                    raise AllranksError("there is no Python on the PATH of the image", hint=hint)
                self._fill(recipe, uv, made, python)
            uv.forget_image(made)
            more = {"image": self._identity}
            if Path(configuration(made)["home"]).is_relative_to(node.pythons):
                more["python_folder"] = str(node.pythons)
                say(f"takes a Python {recipe.python} of the node, without the image's packages")
            return self._finish(recipe, made, goal, began, **more)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _bundled_pip(self, environment: Path) -> str | None:
        return (self._running and self._running.bundled_pip) or None


def open_room(
    task: Task, node: int, name: str, folder: Path, wait: Wait, say: Say
) -> tuple[NodeContainer, Prepared]:
    """The container of the attempt in ``folder``, and what its ranks begin with: the packages of
    the task's recipe, if it has one, are there. Raises as ``room.open_room`` and
    ``EnvironmentCache.provide``."""
    pythons: list[str] = []

    def packages(container: Container) -> list[Mount]:
        assert task.recipe is not None
        own = folder / "packages"
        own.mkdir()
        environ = {**_home(), **task.base, **task.tools}
        uv = program(task.uv, os.environ.get("PATH"))
        identity = images.identity(container, own, wait)
        making = f"{name}-packages"
        shelf = ImageShelf(Path(task.environments), uv, environ, container, identity, own, making)
        with job_environment.logged(task, node, shelf.log(task.recipe)):
            made = shelf.provide(task.recipe, wait, say)
        layer(made.folder, folder / "environment")
        pythons.extend(_python_folder(made))
        return [Mount(each) for each in pythons]

    more = (packages,) if task.recipe is not None else ()
    # MPI tells nodes apart by the names of their hosts.
    host = hostname(node) if task.distribution == "mpi" and task.nodes > 1 else ""
    opened = node_container.open_container(task, name, folder, wait, say, *more, host=host)
    try:
        return opened, _prepared(task, folder, opened, wait, own_python=not pythons)
    except BaseException:
        opened.close()
        raise


def _prepared(
    task: Task, folder: Path, opened: NodeContainer, wait: Wait, *, own_python: bool
) -> Prepared:
    """``own_python``: the environment's Python is the image's."""
    base, variables = task.base, task.variables
    if task.recipe is not None:
        goal = str(folder / "environment")
        # Before it stands what the image's BASH_ENV prints.
        path = opened.ask('printf "\\n%s" "$PATH"', {}, wait).rpartition("\n")[2]
        base = activated({**base, "PATH": path}, goal, task.recipe.variables)
        if not own_python:
            # Modules of the image are for the image's Python.
            base = {"PYTHONPATH": "", **base}
        variables = kept(variables, goal)
    tensorflow = None
    if task.distribution == "tensorflow":
        told = opened.ask(installed_frameworks.ASK_TENSORFLOW, {**base, **variables}, wait)
        tensorflow = installed_frameworks.told(told)
    return Prepared(dict(base), dict(variables), tensorflow)


def _python_folder(made: Made) -> list[str]:
    """The node's folder with the environment's Python; empty if that is the image's."""
    told = json.loads((made.folder / READY).read_text())
    return [told["python_folder"]] if "python_folder" in told else []


def _home() -> dict[str, str]:
    return {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}


def _node(uv: str, variables: Mapping[str, str]) -> _Node:
    """Raises AllranksError when uv does not start."""

    def told(*words: str) -> Path:
        try:
            done = subprocess.run(
                [uv, *words, "dir"], env=variables, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise AllranksError(
                f"uv, which makes environments, cannot be started: {error}",
                where=uv,
                hint="install it where the node finds it: pip install uv",
            ) from None
        found = Path(done.stdout.strip())
        found.mkdir(parents=True, exist_ok=True)
        return found

    return _Node(os.path.realpath(shutil.which(uv) or uv), told("cache"), told("python"))


def _inside(variables: Mapping[str, str], node: _Node, own: Path) -> dict[str, str]:
    """The variables of uv in the container."""
    ours = {"UV_CACHE_DIR": str(node.cache), "UV_PYTHON_INSTALL_DIR": str(node.pythons)}
    netrc = Path(variables.get("HOME", "/nonexistent"), ".netrc")
    found = {"UV_LINK_MODE": "copy", "UV_PYTHON_PREFERENCE": "system"}
    if netrc.is_file():
        found["NETRC"] = str(netrc)
    return {**found, **variables, **ours, "HOME": str(own)}


def _needed(recipe: Recipe, lines: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    """Files and folders of the node that requirements and settings name."""
    texts = [*recipe.requirements, *recipe.constraints, *lines]
    texts += [value for name, value in variables.items() if _NAMES_FILES.match(name)]
    if "HOME" in variables and "NETRC" not in variables:
        texts.append(f"{variables['HOME']}/.netrc")
    for text in texts:
        for found in _PATH.finditer(text):
            rest = text[found.end() :]
            ends = [len(rest), *(each.start() for each in re.finditer(r"[\s,;#]", rest))]
            several = (unquote(rest[:end]) for end in sorted(ends, reverse=True))
            if there := next((each for each in several if os.path.exists(each)), None):
                yield os.path.abspath(there)


def _once(given: Sequence[Mount]) -> list[Mount]:
    """One mount for each path."""
    rights: dict[str, bool] = {}
    for path, writable in given:
        rights[path] = rights.get(path, False) or writable
    return [Mount(path, writable) for path, writable in sorted(rights.items())]
