"""Environments on top of an image: built inside a container of it, and reused by later jobs.

They are stored with the node's other environments, under a hash that includes the image, and also
find the image's own packages. Job containers mount them read-only at the same path; each attempt
has a layer of its own in front.
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
from allranks.agent.environments.uv import Say, Wait, configuration, not_started, program
from allranks.agent.environments.uv_in_container import UvInContainer
from allranks.agent.environments.virtual_environments import READY, Environment, EnvironmentCache
from allranks.core.environments.activation import activated, kept
from allranks.core.environments.container import Mount, hostname
from allranks.core.plan import Container, Recipe, Task
from allranks.errors import AllranksError

_OURS = str(Path(__file__).absolute().parents[1])
# Variables with which uv and others refer to files of the node.
_NAMES_FILES = re.compile(r"UV_|SSL_|NETRC$|REQUESTS_CA_BUNDLE$")
_PROGRAM = "ALLRANKS_IMAGE_PROGRAM"
_PATH = re.compile(r"(?:^|[\s=,]|file://)(?=/[^/\s])")


class _NodeUv(NamedTuple):
    """Paths of the node that containers mount: uv, its cache, the Pythons it downloaded."""

    uv: str
    cache: Path
    pythons: Path


class ImageEnvironmentCache(EnvironmentCache):
    """Environments on top of the image of ``container`` with the content hash ``identity``.
    ``own``: a folder of the attempt for the container ``name`` that builds one."""

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
        self._running: UvInContainer | None = None

    def _platform(self, recipe: Recipe) -> tuple[str, str]:
        return f"image {self._identity}", ""

    def _build_locked(
        self, recipe: Recipe, path: Path, lock: int, wait: Wait, say: Say
    ) -> Environment:
        began = time.time()
        log = path.with_suffix(".log")
        log.unlink(missing_ok=True)
        say("installs packages on top of the image")
        if path.exists():
            # It was built with a Python that this node does not have; another node may use it.
            path = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
        variables = self._variables(recipe)
        node = _node_uv(self._uv, variables)
        temporary = self._temporary_folder(path)
        environment = temporary / "environment"
        writable = (self._own, temporary, node.cache, node.pythons)
        mounts = [Mount(str(folder), True) for folder in writable]
        mounts += [Mount(node.uv), Mount(_OURS)]
        mounts += [Mount(file) for file in _referenced_paths(recipe, self._pip.lines, variables)]
        try:
            started = node_container.start_container(
                self._container, self._name, self._own, _unique_mounts(mounts), wait
            )
            with contextlib.closing(started):
                env = _uv_variables(variables, node, self._own)
                uv = self._running = UvInContainer(
                    started, node.uv, env, temporary, log, wait, say, recipe.allow_builds
                )
                python = recipe.python or uv.image_python()
                if not python:
                    hint = "set a version, such as `python: '3.11'`: uv downloads it if missing"
                    raise AllranksError("no Python on the PATH of the image", hint=hint)
                self._build(recipe, uv, environment, python)
            uv.forget_image(environment)
            more = {"image": self._identity}
            if Path(configuration(environment)["home"]).is_relative_to(node.pythons):
                more["python_folder"] = str(node.pythons)
                say(f"uses Python {recipe.python} of the node, without the image's packages")
            return self._finish(recipe, environment, path, began, **more)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _bundled_pip(self, environment: Path) -> str | None:
        return (self._running and self._running.bundled_pip) or None


def open_container(
    task: Task, node: int, name: str, folder: Path, wait: Wait, say: Say
) -> tuple[NodeContainer, Prepared]:
    """Start the container of the attempt in ``folder``, with the packages of the task's recipe.
    Returns it and the variables for the ranks. Raises as ``node_container.open_container`` and
    ``EnvironmentCache.provide``."""
    pythons: list[str] = []
    of_image: dict[str, str] = {}

    def packages(container: Container) -> list[Mount]:
        if _PROGRAM in task.command:
            of_image[_PROGRAM] = images.start_line(container, folder / "container", wait)
        if task.recipe is None:
            return []
        own = folder / "packages"
        own.mkdir()
        environ = {**_home(), **task.base, **task.tools}
        uv = program(task.uv, os.environ.get("PATH"))
        identity = images.identity(container, own, wait)
        environments = ImageEnvironmentCache(
            Path(task.environments), uv, environ, container, identity, own, f"{name}-packages"
        )
        with job_environment.copy_log(task, node, environments.log(task.recipe)):
            environment = environments.provide(task.recipe, wait, say)
        layer(environment.folder, folder / "environment")
        pythons.extend(_python_folder(environment))
        return [Mount(python) for python in pythons]

    # MPI identifies nodes by their host names.
    host = hostname(node) if task.distribution == "mpi" and task.nodes > 1 else ""
    started = node_container.open_container(task, name, folder, wait, say, packages, host=host)
    try:
        prepared = _prepared(task, folder, started, wait, own_python=not pythons)
        prepared.variables.update(of_image)
        return started, prepared
    except BaseException:
        started.close()
        raise


def _prepared(
    task: Task, folder: Path, started: NodeContainer, wait: Wait, *, own_python: bool
) -> Prepared:
    """``own_python``: the environment uses the image's Python."""
    base, variables = task.base, task.variables
    if task.recipe is not None:
        environment = str(folder / "environment")
        # The image's BASH_ENV may print lines before it.
        path = started.ask('printf "\\n%s" "$PATH"', {}, wait).rpartition("\n")[2]
        base = activated({**base, "PATH": path}, environment, task.recipe.variables)
        if not own_python:
            # The image's PYTHONPATH is for the image's Python.
            base = {"PYTHONPATH": "", **base}
        variables = kept(variables, environment)
    tensorflow = None
    if task.distribution == "tensorflow":
        output = started.ask(installed_frameworks.ASK_TENSORFLOW, {**base, **variables}, wait)
        tensorflow = installed_frameworks.parse_version(output)
    return Prepared(dict(base), dict(variables), tensorflow)


def _python_folder(environment: Environment) -> list[str]:
    """The node's folder with the environment's Python; empty if it uses the image's."""
    about = json.loads((environment.folder / READY).read_text())
    return [about["python_folder"]] if "python_folder" in about else []


def _home() -> dict[str, str]:
    return {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}


def _node_uv(uv: str, variables: Mapping[str, str]) -> _NodeUv:
    """Raises AllranksError if uv does not start."""

    def folder(kind: str) -> Path:
        try:
            done = subprocess.run(
                [uv, kind, "dir"], env=variables, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise not_started(uv, error) from None
        path = Path(done.stdout.strip())
        path.mkdir(parents=True, exist_ok=True)
        return path

    return _NodeUv(os.path.realpath(shutil.which(uv) or uv), folder("cache"), folder("python"))


def _uv_variables(variables: Mapping[str, str], node: _NodeUv, own: Path) -> dict[str, str]:
    """uv's variables inside the container."""
    defaults = {"UV_LINK_MODE": "copy", "UV_PYTHON_PREFERENCE": "system"}
    netrc = Path(variables.get("HOME", "/nonexistent"), ".netrc")
    if netrc.is_file():
        defaults["NETRC"] = str(netrc)
    folders = {"UV_CACHE_DIR": str(node.cache), "UV_PYTHON_INSTALL_DIR": str(node.pythons)}
    return {**defaults, **variables, **folders, "HOME": str(own)}


def _referenced_paths(
    recipe: Recipe, lines: Sequence[str], variables: Mapping[str, str]
) -> Iterator[str]:
    """Files and folders of the node that requirements and settings refer to."""
    texts = [*recipe.requirements, *recipe.constraints, *lines]
    texts += [value for name, value in variables.items() if _NAMES_FILES.match(name)]
    if "HOME" in variables and "NETRC" not in variables:
        texts.append(f"{variables['HOME']}/.netrc")
    for text in texts:
        for match in _PATH.finditer(text):
            rest = text[match.end() :]
            ends = [len(rest), *(separator.start() for separator in re.finditer(r"[\s,;#]", rest))]
            # The longest existing path, because paths may contain the separators.
            paths = (unquote(rest[:end]) for end in sorted(ends, reverse=True))
            if path := next((each for each in paths if os.path.exists(each)), None):
                yield os.path.abspath(path)


def _unique_mounts(mounts: Sequence[Mount]) -> list[Mount]:
    """One mount for each path."""
    writable: dict[str, bool] = {}
    for mount in mounts:
        writable[mount.path] = writable.get(mount.path, False) or mount.writable
    return [Mount(path, value) for path, value in sorted(writable.items())]
