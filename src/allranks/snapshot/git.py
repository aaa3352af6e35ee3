"""Git: commit and uncommitted changes of local code, and checkouts of remote repositories."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.errors import NotFound, UsageError
from allranks.masking import SECRET_FILES, without_credentials

# Seconds for each command: a user waits for the job to start.
_TIMEOUT = 5.0
# Bytes of the diff to keep; the code itself is stored completely.
_MAX_DIFF = 1 << 20
_COMMANDS = {
    "status": ("status", "--porcelain=v2", "--branch", "--no-renames"),
    "url": ("config", "--get", "remote.origin.url"),
    # Of the code folder only, not the rest of the repository.
    "diff": (
        *("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--", "."),
        *(f":(exclude,icase,glob)**/{pattern}" for pattern in SECRET_FILES),
    ),
}
# Set in hooks of git; they would lead to another repository.
_OF_ONE_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")


# `git+URL@REF#FOLDER`; `git+` may be left out of URLs that are unambiguous. Compiled when needed.
_ADDRESS = (
    r"(?:git\+(?P<any>(?:https?|ssh|file)://[^/#]*/[^#]*?)"
    r"|(?P<plain>(?:https?|ssh)://[^/#]*/[^#]*?)"
    r"|(?P<short>[\w.-]+@[\w.-]+:[^#@]+?))(?:@(?P<ref>[^@#/:][^@#:]*))?"
    r"(?:#(?:subdirectory=)?(?P<folder>.*))?"
)


class GitState(NamedTuple):
    """``properties`` of a job, under Azure ML's names; ``diff``: uncommitted changes."""

    properties: Mapping[str, str] = {}
    diff: str = ""


def repository_of(folder: Path) -> Path | None:
    """The top folder of the repository that a folder is in, if it is in one."""
    return next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start git on a folder, to read its output. Raises OSError."""
    # Read-only: no locks, no password prompts, no programs configured by the repository.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    for name in _OF_ONE_REPOSITORY:
        env.pop(name, None)
    quiet = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
    return subprocess.Popen(
        ["git", "-C", str(folder), *quiet, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


class GitQuery:
    """Runs git on a folder in the background; `result` waits for it."""

    def __init__(self, folder: Path) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if repository_of(folder) is None:
            return
        # Git may be missing, or cannot be run.
        with contextlib.suppress(OSError):
            for name, arguments in _COMMANDS.items():
                self._processes[name] = start(folder, *arguments)

    def result(self) -> GitState:
        """The state of the code; empty for a folder outside a repository."""
        outputs = {name: self._output(name) for name in self._processes}
        status = outputs.get("status", b"").decode(errors="replace").splitlines()
        heads = dict(line[2:].split(" ", 1) for line in status if line.startswith("# branch."))
        commit = heads.get("branch.oid", "(initial)")
        if commit == "(initial)":
            return GitState()
        url = outputs.get("url", b"").decode(errors="replace").strip()
        dirty = any(not line.startswith("#") for line in status)
        properties = {
            "azureml.git.repository_uri": without_credentials(url),
            "azureml.git.branch": heads.get("branch.head", ""),
            "azureml.git.commit": commit,
            "azureml.git.dirty": str(dirty),
        }
        diff = outputs.get("diff", b"")
        text = diff[:_MAX_DIFF].decode(errors="replace")
        if len(diff) > _MAX_DIFF:
            text += f"\n… and {len(diff) - _MAX_DIFF} bytes more\n"
        return GitState({name: value for name, value in properties.items() if value}, text)

    def _output(self, name: str) -> bytes:
        process = self._processes[name]
        try:
            output, _ = process.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return b""
        return output if process.returncode == 0 else b""


class Checkout(NamedTuple):
    """The files of a commit, which never change."""

    folder: Path
    repository: str
    git: GitState


def is_address(code: str) -> bool:
    """Whether ``code`` is the address of a repository rather than a local path."""
    return ":" in code and re.fullmatch(_ADDRESS, code) is not None


def checkout(address: str, cache: Path) -> Checkout:
    """Check out `git+URL@REF#FOLDER` into ``cache``, unless it has that commit. REF: a branch, tag
    or full commit hash, by default the default branch; FOLDER: by default the whole repository.

    Raises UsageError with git's message, and NotFound if the folder does not exist.
    """
    match = re.fullmatch(_ADDRESS, address)
    assert match is not None
    url, ref = match["any"] or match["plain"] or match["short"], match["ref"] or "HEAD"
    shown = without_credentials(url)
    repository_cache = cache / hashlib.sha256(url.encode()).hexdigest()[:20]
    store = repository_cache / "repository"
    repository_cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    _touch(repository_cache)
    if not store.exists():
        _git(shown, "init", "--quiet", "--bare", str(store))
    # A ref for each process: others may fetch at the same time.
    local_ref = f"refs/allranks/{os.getpid()}"
    _git(shown, f"--git-dir={store}", "fetch", "--quiet", "--depth=1", url, f"+{ref}:{local_ref}")
    commit = _git(shown, f"--git-dir={store}", "rev-parse", f"{local_ref}^{{commit}}")
    destination = repository_cache / commit
    if not destination.exists():
        import shutil  # lazy: few jobs have code from a repository
        import tempfile  # lazy: as shutil

        temporary = Path(tempfile.mkdtemp(dir=repository_cache))
        into = (f"--git-dir={store}", f"--work-tree={temporary}")
        env = {"GIT_INDEX_FILE": str(temporary.with_suffix(".index"))}
        try:
            _git(shown, *into, "checkout", "--quiet", "--force", commit, "--", ".", env=env)
            temporary.with_suffix(".index").unlink(missing_ok=True)
            temporary.rename(destination)
        except OSError:
            if not destination.exists():  # otherwise another process was first
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    _touch(destination)
    folder = destination / (match["folder"] or "").strip("/")
    if not folder.resolve().is_relative_to(destination.resolve()) or not folder.exists():
        hint = f"the part after # must be a folder or file of the repository at {ref}"
        raise NotFound(f"{match['folder']!r} not found in {shown}", where="code", hint=hint)
    properties = {
        "azureml.git.repository_uri": shown,
        "azureml.git.branch": "" if ref in ("HEAD", commit) else ref,
        "azureml.git.commit": commit,
        "azureml.git.dirty": "False",
    }
    name = re.split(r"[/:]", shown.rstrip("/"))[-1].removesuffix(".git")
    return Checkout(folder, name, GitState({k: v for k, v in properties.items() if v}))


def _touch(folder: Path) -> None:
    """Mark a checkout as used, for garbage collection."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def _git(shown: str, *words: str, env: Mapping[str, str] | None = None) -> str:
    more = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(env or {})}
    try:
        done = subprocess.run(
            ["git", *words],
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        hint = "install git, or use a local folder"
        message = f"cannot start git: {error.strerror}"
        raise UsageError(message, where="code", hint=hint) from None
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
        reason = errors[0].partition(":")[2].strip() if errors else "git failed"
        raise UsageError(
            f"cannot fetch the code from {shown}: {without_credentials(reason)}",
            where="code",
            hint="use git+URL@REF#FOLDER with a branch, tag or full commit hash as REF; "
            "credentials come from git's settings",
        )
    return done.stdout.strip()
