"""The submitter's Python on a node: used where it is, or made again from its packages."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from allranks.core.plan import CurrentPython, Interpreter, Task
from allranks.errors import AllranksError

# Wheels of the submitter's; requirements refer to them by this variable, which uv replaces.
WHEELS = "CURRENT_PYTHON_WHEELS"
_VERSION = re.compile(r"^version(?:_info)? *= *(\d+\.\d+[\w.]*)", re.MULTILINE)
_NAMED = re.compile(r"python(\d+\.\d+t?)")
_LISTED = (".dist-info", ".egg-info", ".egg-link", ".pth")
# Builds of PyTorch for a kind of node, and what it requires or not, depending on the build.
BUILD = re.compile(r"\+(cpu|cu\d+|rocm[\d.]+|xpu)$")
OF_CUDA = re.compile(r"nvidia[-_].+|(pytorch[-_])?triton([-_].+)?", re.IGNORECASE)
_REQUIREMENT = re.compile(r"([\w.-]+?) ?(?:==|@ )(.+)")
_MANY = 5
_AS_IT_IS = (
    "to run with its packages of now, submit the job again, or: allranks job restart JOB -C DIR, "
    "with the folder of its code; so that a job that waits does not mind, install into another "
    "environment, or submit with -e requirements.txt"
)
_HINT = "name what the job needs: -e requirements.txt, or --image for an image that has it"


def for_this_node(task: Task, wheels: Path) -> Task:
    """The task for this node: without its recipe if the submitter's very Python is here, else with
    the folder of its ``wheels``. Raises AllranksError if that Python is neither here nor can be
    made."""
    current = task.current
    if current is None:
        if task.recipe is None and task.container is None:
            _require_environment({**task.base, **task.variables})
        return task
    if is_here(current):
        return task._replace(recipe=None)
    return task._replace(tools={**task.tools, WHEELS: str(wheels)})


@contextlib.contextmanager
def named(current: CurrentPython | None) -> Iterator[None]:
    """Errors of making the submitter's Python again say so."""
    try:
        yield
    except AllranksError as error:
        if current is not None:
            host, hint = socket.gethostname(), _HINT
            message = f"your Python {current.path} is not on {host}"
            if os.access(current.path, os.X_OK):
                what, hint = "; ".join(_changes(current)), _AS_IT_IS
                message = (
                    f"your Python {current.path} is on {host}, but its packages changed since you "
                    f"submitted{what and f' ({what})'}, and those of then cannot be made there"
                )
            error.message = f"{message}: {error.message}"
            error.hint = f"{error.hint}; or {hint}" if error.hint else hint
        raise


def _changes(current: CurrentPython) -> Iterator[str]:
    """What is different in the packages that are here, as far as names and versions tell."""
    before, now = dict[str, str](), dict[str, str]()
    for line in current.requirements:
        if match := _REQUIREMENT.match(line):
            before[_key(match[1])] = match[2]
    for site in reversed(current.sites):
        with contextlib.suppress(OSError):
            infos = [name for name in os.listdir(site) if name.endswith(".dist-info")]
            for name, _, version in (info[: -len(".dist-info")].partition("-") for info in infos):
                # Those of the system, and some of PyTorch, are in no list.
                is_unlisted = site.endswith("dist-packages") or _is_unlisted(name)
                if _key(name) in before or not is_unlisted:
                    now[_key(name)] = BUILD.sub("", version)
    changed = {
        f"{name} {before[name]} is now {now[name]}"
        for name in before.keys() & now.keys()
        if "/" not in before[name] and before[name] != now[name]
    }
    kinds = {"new": now.keys() - before.keys(), "gone": before.keys() - now.keys()}
    for what, names in (("", changed), *kinds.items()):
        if names:
            more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
            yield f"{what}{': ' if what else ''}{', '.join(sorted(names)[:_MANY])}{more}"


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_unlisted(name: str) -> bool:
    return name == "allranks" or OF_CUDA.fullmatch(name) is not None


def is_here(current: CurrentPython) -> bool:
    """Whether this node has that Python, with the same packages."""
    return os.access(current.path, os.X_OK) and fingerprint(current.sites) == current.fingerprint


def _require_environment(env: Mapping[str, str]) -> None:
    """Raise AllranksError if the activated environment is not here: the next Python on PATH would
    run instead."""
    prefix = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX")
    if not prefix or not env.get("PATH", "").startswith(f"{prefix}/bin:"):
        return
    if not any(os.access(f"{prefix}/bin/{name}", os.X_OK) for name in ("python", "python3")):
        message = f"your Python is not on {socket.gethostname()}"
        raise AllranksError(message, where=prefix, hint=_HINT)


def fingerprint(sites: Iterable[str]) -> str:
    """A hash of which packages these folders hold. Of those that no index has, it counts which
    files were installed."""
    lines: list[str] = []
    for site in sites:
        try:
            names = sorted(name for name in os.listdir(site) if name.endswith(_LISTED))
        except OSError:
            names = []
        for name in names:
            lines.append(name)
            if os.path.exists(f"{site}/{name}/direct_url.json"):
                lines.append(_hash(f"{site}/{name}/RECORD"))
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _hash(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def interpreter(env: Mapping[str, str], packages: int | None = None) -> Interpreter | None:
    """The Python that ranks with these variables find first. With ``packages`` the environment was
    made for them, and the path is that of the Python below it."""
    path = _first("python", env) or _first("python3", env)
    if path is None:
        return None
    real = os.path.realpath(path)
    return Interpreter(path if packages is None else real, _version(path, real), packages)


def _first(name: str, env: Mapping[str, str]) -> str | None:
    folders = env.get("PATH", "").split(":")
    paths = (f"{folder}/{name}" for folder in folders if folder)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _version(path: str, real: str) -> str:
    try:
        with open(f"{os.path.dirname(os.path.dirname(path))}/pyvenv.cfg", "rb") as file:
            match = _VERSION.search(file.read().decode(errors="replace"))
    except OSError:
        match = None
    match = match or _NAMED.fullmatch(os.path.basename(real))
    return match[1] if match else ""
