"""The environment `current`: the submitter's Python and what its activation set."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from allranks.core.job.shell_variables import is_ours
from allranks.errors import UsageError
from allranks.masking import looks_secret

# What `allranks python` adds to PYTHONPATH: jobs have an answer of their own.
_ANSWERS = str(Path(__file__).absolute().parents[2] / "compat" / "azure" / "inside")
# The clean base. Nothing else of the submitter's shell is passed on.
_BASE = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PATH")
# Set in a rank: the server lets no job wait for the one whose rank submitted it.
_SUBMITTER = "ALLRANKS_JOB"
_ACTIVATION = (
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
)
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Indexes, caches and certificates of pip and uv, without what uv sets for its child processes.
_TOOL_PREFIXES = ("PIP_", "UV_", "SSL_CERT_", "XDG_CONFIG_", "XDG_CACHE_")
_TOOL_NAMES = ("NETRC", "REQUESTS_CA_BUNDLE", "SSH_AUTH_SOCK")
_UV_CHILD_PREFIXES = ("UV_RUN_", "UV_PROJECT", "UV_WORKING_DIR")


def is_current(environment: object) -> bool:
    """Whether a job's ``environment`` is that of the submitter."""
    return environment in (None, "current", "azureml:current@latest")


def current(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The base environment of ranks, with the current Python's folder first on PATH."""
    passed = (*_BASE, *_ACTIVATION, _SUBMITTER)
    env = {name: environ[name] for name in passed if environ.get(name)}
    for name in environ:
        if name.lower() in _PROXIES or name.startswith("CONDA_"):
            env[name] = environ[name]
    folders = [folder for folder in env.pop("PYTHONPATH", "").split(":") if folder != _ANSWERS]
    if any(folders):
        env["PYTHONPATH"] = ":".join(folders)
    path = env.get("PATH") or _SYSTEM_PATH
    front = _bin(environ, path)
    parts = [part for part in path.split(":") if part]
    if front and parts[:1] != [front]:
        parts = [front, *(part for part in parts if part != front)]
    env["PATH"] = ":".join(parts)
    return env


def tools(
    environ: Mapping[str, str] = os.environ, python: bool = True, elsewhere: bool = False
) -> dict[str, str]:
    """This shell's settings for pip and uv, for building the job's environment; with ``python``
    also the current Python if PATH does not show it (slow). ``elsewhere``: without those that name
    files of this machine, or indexes, which the list of packages names without passwords."""
    env = {name: value for name, value in environ.items() if _is_tool_setting(name)}
    if elsewhere:
        env = {name: value for name, value in env.items() if _works_elsewhere(name, value)}
    front = python_behind_shim(environ) if python else None
    return env if front is None else {**env, "ALLRANKS_PYTHON": front}


def _is_tool_setting(name: str) -> bool:
    if name.startswith(_UV_CHILD_PREFIXES) or name == "UV_PYTHON":
        return False
    return name.startswith(_TOOL_PREFIXES) or name in _TOOL_NAMES


def _works_elsewhere(name: str, value: str) -> bool:
    return not value.startswith(("/", "~", "file:")) and not re.search("INDEX|FIND_LINKS", name)


def python_behind_shim(environ: Mapping[str, str] = os.environ) -> str | None:
    """The current Python behind a shim of pyenv, mise or asdf, which depends on the folder and the
    shell (slow); None if it is no shim."""
    front = _bin(environ, environ.get("PATH") or _SYSTEM_PATH)
    names = [os.path.join(front or "", name) for name in ("python", "python3")]
    exe = next((path for path in names if os.path.exists(path)), None)
    real = os.path.basename(os.path.realpath(exe or ""))
    if exe is None or (real.startswith(("python", "pypy")) and not _is_script(exe)):
        return None
    ask = [exe, "-I", "-c", "import sys; print(getattr(sys, '_base_executable', sys.executable))"]
    try:
        done = subprocess.run(ask, env=environ, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def asked_for(
    assignments: Sequence[str], everything: bool, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables of `--env KEY=VALUE`, `--env KEY` and `--env-all`.

    Raises UsageError for a KEY that is not set.
    """
    env = {}
    if everything:
        env = {
            name: value
            for name, value in environ.items()
            if not looks_secret(name) and not is_ours(name)
        }
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name:
            hint = "write NAME=VALUE, or NAME for the value it has here"
            raise UsageError(f"{assignment!r} has no name", where="--env", hint=hint)
        if not equals:
            if name not in environ:
                hint = f"set it: --env {name}=VALUE"
                raise UsageError(f"{name} is not set in this shell", where="--env", hint=hint)
            value = environ[name]
        env[name] = value
    return env


def _bin(environ: Mapping[str, str], path: str) -> str | None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(name)
        if prefix and os.path.exists(os.path.join(prefix, "bin", "python")):
            return os.path.join(prefix, "bin")
    import shutil  # lazy: 2 ms, and most shells have an environment activated

    python = shutil.which("python", path=path) or shutil.which("python3", path=path)
    return os.path.dirname(python) if python else None
