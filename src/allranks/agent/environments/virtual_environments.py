"""The cache of jobs' virtual environments: built once, then shared.

Each environment's folder is named by a hash of its recipe and of everything else that determines
its content; nodes with a common disk share it. The first to need it builds it in a temporary folder
under a lock, and renames it when complete; others wait and follow the same log. Builders never
delete an existing environment. Jobs do not write to it: each attempt has a layer in front.
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
from allranks.core.environments.packages import replaced
from allranks.core.plan import Recipe
from allranks.errors import AllranksError
from allranks.masking import without_credentials

READY = "allranks.json"
# Seconds between two attempts to take the lock.
_LOCK_POLL_SECONDS = 0.1
# Variables that would lead uv to another Python, or change what it installs.
_HIDDEN_FROM_UV = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "PIP_")
# uv's variables that do not affect what it installs.
_IRRELEVANT = (
    "CACHE_DIR",
    "HTTP_",
    "CONCURRENT_",
    "LINK_MODE",
    "INSECURE_HOST",
    "KEYRING",
    "NO_PROGRESS",
)
# Debian's replacement for the pip bundled with Python.
_DEBIAN_WHEELS = Path("/usr/share/python-wheels")
# Versions of GPU drivers, from which uv chooses builds of PyTorch.
_NVIDIA = Path("/sys/module/nvidia/version")
_DRIVERS = (_NVIDIA, Path("/sys/module/amdgpu/version"))


class Environment(NamedTuple):
    """A complete environment: its folder, Python version, and package versions. ``left_out``:
    optional packages that do not fit the others."""

    folder: Path
    python: str
    packages: Mapping[str, str]
    left_out: tuple[str, ...] = ()


class EnvironmentCache:
    """The environments in ``folder``. ``environ``: the requester's variables, which determine
    Python, uv's cache and the settings of pip and uv."""

    def __init__(self, folder: Path, uv: str, environ: Mapping[str, str]) -> None:
        self._folder, self._uv, self._environ = folder, uv, environ
        self._pip = pip_conf.for_uv(environ)

    def path(self, recipe: Recipe) -> Path:
        """The path of a recipe's environment. Raises AllranksError if the node has no Python."""
        parts = [
            recipe.python,
            recipe.requirements,
            recipe.constraints,
            recipe.torch_backend,
            os.uname().machine,
            *self._platform(recipe),
            *_kind(recipe),
            self._pip.lines,
            *sorted(
                (name, without_credentials(value))
                for name, value in self._variables(recipe).items()
                if name.startswith("UV_") and not name[3:].startswith(_IRRELEVANT)
            ),
        ]
        if recipe.torch_backend == "auto":
            parts += [driver.read_text() for driver in _DRIVERS if driver.exists()]
        return self._folder / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def _platform(self, recipe: Recipe) -> tuple[str, str]:
        """The C library and Python, which determine the wheels that are installed."""
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
        return libc, "" if recipe.python else self._python()

    def log(self, recipe: Recipe) -> Path:
        """The log of the build."""
        return self.path(recipe).with_suffix(".log")

    def find(self, recipe: Recipe) -> Environment | None:
        """The environment, or None if it or its Python does not exist."""
        return _find(self.path(recipe))

    def provide(self, recipe: Recipe, wait: Wait, say: Say) -> Environment:
        """Return the environment, building it if necessary; ``say`` receives progress.

        Raises AllranksError with the reason if it cannot be built, and what ``wait`` raises.
        """
        path, others = self.path(recipe), None
        while (environment := _find(path)) is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = file_locks.take(path.with_suffix(".lock"))
            if lock is None:
                others = others or _OtherBuild(path.with_suffix(".log"), say)
                others.forward()
                wait(seconds=_LOCK_POLL_SECONDS)
                continue
            try:
                # Another process may have built it meanwhile.
                environment = _find(path) or self._build_locked(recipe, path, lock, wait, say)
            finally:
                os.close(lock)
            break
        with contextlib.suppress(OSError):
            os.utime(environment.folder / READY)  # for garbage collection
        return environment

    def _build_locked(
        self, recipe: Recipe, path: Path, lock: int, wait: Wait, say: Say
    ) -> Environment:
        began = time.time()
        log = path.with_suffix(".log")
        log.unlink(missing_ok=True)
        variables = self._variables(recipe)
        uv = Uv(self._uv, variables, self._folder, log, lock, wait, say, recipe.allow_builds)
        python = self._requested(recipe)
        if path.exists():
            # It was built with a Python that this node does not have; another node may use it.
            python = uv.find(python)
            path = path.with_name(f"{path.name}-{hashlib.sha256(python.encode()).hexdigest()[:8]}")
        temporary = self._temporary_folder(path)
        folder = temporary / "environment"
        try:
            self._build(recipe, uv, folder, python)
            left_out = _misfits(recipe, _packages(folder))
            if left_out:
                uv.uninstall(folder, left_out)
            return self._finish(recipe, folder, path, began, left_out=left_out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _finish(
        self, recipe: Recipe, folder: Path, path: Path, began: float, **more: object
    ) -> Environment:
        """Mark the environment as complete, and rename it to ``path``."""
        about = {
            "recipe": recipe_hash(recipe),
            "python": configuration(folder)["version_info"],
            "packages": _packages(folder),
            "seconds": round(time.time() - began, 3),
            **more,
        }
        (folder / READY).write_text(json.dumps(about))
        # On file systems without shared locks, another node may have built it first.
        with contextlib.suppress(OSError):
            folder.rename(path)
        if (environment := _read_environment(path)) is None:
            raise AllranksError(
                "the environment was built, but is not in its folder",
                where=str(path),
                hint="check that the disk of ALLRANKS_HOME is available",
            )
        return environment

    def _build(self, recipe: Recipe, uv: Uv, folder: Path, python: str) -> None:
        """Build the environment in ``folder``. Raises AllranksError with all conflicts that uv can
        find."""
        # Do not choose builds of PyTorch for a site with its own indexes.
        backend = "" if self._pip.own_index else recipe.torch_backend
        if recipe.exact:
            self._build_exact(recipe, uv, folder, python, backend)
            return
        try:
            uv.venv(folder, python)
            for number, lines in enumerate(self._lines(recipe, folder)):
                requirements = folder.parent / f"requirements-{number}.txt"
                requirements.write_text("".join(f"{line}\n" for line in lines))
                uv.install(folder, requirements, backend)
        except Conflicting as first:
            if first.conflict.requested.startswith("python="):
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    uv.venv(folder, first.conflict.replacement)
                except AllranksError:
                    raise first from None
            elif not folder.exists():
                raise
            lines = self._lines(recipe, folder)[0]
            check = functools.partial(uv.check, folder, written=lines, backend=backend)
            conflicts = collect(first, lines, check)
            if not (recipe.nearest_python and conflicts.are_solved):
                raise conflicts.error(first) from None
            shutil.rmtree(folder, ignore_errors=True)
            taken = replaced(recipe.requirements, conflicts.table().get)
            nearest = recipe._replace(requirements=taken.lines, nearest_python=False)
            self._build(nearest, uv, folder, conflicts.python or python)

    def _build_exact(self, recipe: Recipe, uv: Uv, folder: Path, python: str, backend: str) -> None:
        """Build the environment from its list of all packages. What PyTorch needs beside it depends
        on the node's GPUs, and is not in the list."""
        uv.venv(folder, python)
        rows = exact_lines(recipe, self._pip)
        requirements = folder.parent / "requirements-0.txt"
        requirements.write_text("".join(f"{row}\n" for row in rows))
        backend = uv.install_exact(folder, requirements, backend)
        torch = _packages(folder).get("torch")
        if torch is not None and not torch.endswith("+cpu"):
            options = [row for row in rows if row.startswith("-")]
            requirements = folder.parent / "requirements-1.txt"
            requirements.write_text("".join(f"{row}\n" for row in (*options, f"torch=={torch}")))
            uv.install(folder, requirements, backend)

    def _temporary_folder(self, path: Path) -> Path:
        """A new folder to build in. Deletes what killed builds of this host left."""
        prefix = f"{path.name}.{os.uname().nodename}."
        for folder in self._folder.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(folder, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=self._folder, prefix=prefix))

    def _lines(self, recipe: Recipe, environment: Path) -> list[tuple[str, ...]]:
        """The requirements files, in order of installation."""
        hashed = self._needs_hashes(recipe)
        site = [row for row in self._pip.lines if not (hashed and row.startswith("-c "))]
        if recipe.constraints and not hashed:
            constraints = environment.parent / "constraints.txt"
            constraints.write_text("".join(f"{line}\n" for line in recipe.constraints))
            site.append(f"-c {constraints}")
        if recipe.torch_backend == "auto" and not _NVIDIA.exists():
            recipe = uv_messages.without_cuda(recipe)
        lines = uv_messages.lines(recipe, site, self._bundled_pip(environment), hashed)
        return [lines.first, *([lines.then] if lines.then else [])]

    def _needs_hashes(self, recipe: Recipe) -> bool:
        """Whether each requirement has a hash, and so is pinned: uv then takes no constraint that
        has none, which pip does."""
        variables = self._variables(recipe)
        return "--require-hashes" in recipe.requirements or "UV_REQUIRE_HASHES" in variables

    def _bundled_pip(self, environment: Path) -> str | None:
        """The folder with the pip wheel bundled with Python, for nodes without an index."""
        home = Path(configuration(environment).get("home", "/nonexistent"))
        wheels = [*home.parent.glob("lib/python3*/ensurepip/_bundled/pip-*.whl")]
        wheels += _DEBIAN_WHEELS.glob("pip-*.whl")
        return str(wheels[0].parent) if wheels else None

    def _variables(self, recipe: Recipe) -> dict[str, str]:
        """The variables for uv: the requester's, without those that mislead it."""
        own = {n: v for n, v in self._environ.items() if not n.startswith(_HIDDEN_FROM_UV)}
        variables = {**self._pip.variables, **own, "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
        variables["RUST_LOG"] = uv_messages.LOG_FILTER
        if uv_messages.names_index(recipe):
            variables.pop("UV_DEFAULT_INDEX", None)  # it would override the line
        if "UV_CONFIG_FILE" not in variables:
            # Ignore settings of a project, since the environment is shared between projects.
            home = Path(own.get("HOME", "/nonexistent"))
            own_file = Path(own.get("XDG_CONFIG_HOME") or home / ".config", "uv/uv.toml")
            files = [file for file in (own_file, Path("/etc/uv/uv.toml")) if file.exists()]
            variables |= {"UV_CONFIG_FILE": str(files[0])} if files else {"UV_NO_CONFIG": "1"}
        return variables

    def _requested(self, recipe: Recipe) -> str:
        """What to ask uv for: the path of a Python, or a version, for which it searches 0.2 s."""
        if not recipe.python:
            return self._python()
        if recipe.exact:
            with contextlib.suppress(AllranksError):
                python = self._python()
                if os.path.basename(python) == f"python{recipe.python}":
                    return python
        return recipe.python

    def _python(self) -> str:
        """The first Python on PATH, resolved to the base Python of a virtual environment."""
        configured = self._environ.get("ALLRANKS_PYTHON")
        if configured and os.access(configured, os.X_OK):
            return configured
        search = self._environ.get("PATH")
        python = shutil.which("python", path=search) or shutil.which("python3", path=search)
        if python is None:
            hint = "set a version, such as `python: '3.11'`: uv downloads it if missing"
            raise AllranksError("no Python on PATH to build an environment with", hint=hint)
        return os.path.realpath(python)


class _OtherBuild:
    """Follows the log of another process that builds the environment."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say, self._at = path, say, 0
        say("waits for the environment, which another process is building")

    def forward(self) -> None:
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._at:
                self._at = 0  # the build was restarted
            file.seek(self._at)
            complete, newline, _ = file.read().rpartition(b"\n")
            self._at += len(complete + newline)
            for line in complete.splitlines():
                if text := uv_messages.progress(line.decode(errors="replace")):
                    self._say(text)


def recipe_hash(recipe: Recipe) -> str:
    """A hash of the recipe that is the same on all machines. Recipes with different hashes never
    share an environment."""
    parts = [recipe.python, recipe.requirements, recipe.constraints, recipe.torch_backend]
    parts += _kind(recipe)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _kind(recipe: Recipe) -> list[str]:
    kinds = {"exact": recipe.exact, "nearest_python": recipe.nearest_python}
    return [kind for kind, is_so in kinds.items() if is_so]


def exact_lines(recipe: Recipe, pip: pip_conf.PipConfiguration) -> tuple[str, ...]:
    """The requirements file of a list of all packages. Constraints of the site do not apply; its
    own index replaces that of the list, which the node may not reach."""
    site = [row for row in pip.lines if not row.startswith("-c ")]
    rows = recipe.requirements
    if pip.own_default:
        rows = tuple(row for row in rows if not row.startswith("--index-url"))
    return (*site, *rows)


def _read_environment(folder: Path) -> Environment | None:
    try:
        about = json.loads((folder / READY).read_text())
        # The Python may be missing: removed, or only on another node. An image's Python exists only
        # inside its containers.
        inside = about.get("python_folder") or folder if "image" in about else None
        os.stat(inside or folder / "bin" / "python")
        left_out = tuple(about.get("left_out", ()))
        return Environment(folder, about["python"], about["packages"], left_out)
    except (OSError, ValueError, KeyError):
        return None


def _find(path: Path) -> Environment | None:
    """The environment at a path, or a variant beside it for nodes with another Python."""
    candidates = [path, *sorted(path.parent.glob(f"{path.name}-*"))]
    return next((each for each in map(_read_environment, candidates) if each is not None), None)


def _misfits(recipe: Recipe, packages: Mapping[str, str]) -> list[str]:
    """Optional packages that a PyTorch for CPUs cannot load, because they are built for CUDA: an
    index that has only PyPI's."""
    if not packages.get("torch", "").endswith("+cpu"):
        return []
    return [name for name in recipe.optional if "+cpu" not in packages.get(name, "+cpu")]


def _packages(environment: Path) -> dict[str, str]:
    """The version of each installed distribution, read from file names."""
    names = (path.stem for path in packages_of(environment).glob("*.dist-info"))
    parts = (name.rpartition("-") for name in names)
    return dict(sorted((name, version) for name, _, version in parts))
