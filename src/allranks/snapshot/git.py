"""What git says of the code: which commit, of what, and what is not committed yet; and code that
lies in a repository somewhere else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.errors import NotFound, UsageError
from allranks.masking import without_credentials

# Seconds for all that is asked: who waits is a person who wants to see a job start.
_PATIENCE = 5.0
# Of what is not committed so many bytes are kept; the code itself is kept whole.
_MOST = 1 << 20
_QUESTIONS = {
    "status": ("status", "--porcelain=v2", "--branch", "--no-renames"),
    "url": ("config", "--get", "remote.origin.url"),
    # Of the code alone: what else is in the repository does not travel either.
    "diff": ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--", "."),
}


# `git+URL@REF#FOLDER`; without `git+` where it can be nothing else.
_ADDRESS = re.compile(
    r"(?:git\+(?P<any>(?:https?|ssh|file)://[^/#]*/[^#]*?)"
    r"|(?P<plain>(?:https?|ssh)://[^/#]*/[^#]*?)"
    r"|(?P<short>[\w.-]+@[\w.-]+:[^#@]+?))(?:@(?P<ref>[^@#/:][^@#:]*))?"
    r"(?:#(?:subdirectory=)?(?P<folder>.*))?"
)


class GitState(NamedTuple):
    """``properties`` are a job's, under Azure ML's names; ``diff`` what is not committed."""

    properties: Mapping[str, str] = {}
    diff: str = ""


class Asked:
    """Questions to git about a folder, which it answers while something else is done."""

    def __init__(self, folder: Path) -> None:
        self._asked: dict[str, subprocess.Popen[bytes]] = {}
        if not any((each / ".git").exists() for each in (folder, *folder.parents)):
            return
        # It is only looked: no lock, no question for a password, no program of the repository's.
        env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        quiet = ["-c", "core.fsmonitor=false", "-c", "core.quotePath=false"]
        try:
            for name, words in _QUESTIONS.items():
                self._asked[name] = subprocess.Popen(
                    ["git", "-C", str(folder), *quiet, *words],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
        except OSError:
            pass  # no git here, or not for us

    def told(self) -> GitState:
        """Its answers; nothing of a folder that git knows nothing of."""
        found = {name: self._answer(name) for name in self._asked}
        status = found.get("status", b"").decode(errors="replace").splitlines()
        heads = dict(line[2:].split(" ", 1) for line in status if line.startswith("# branch."))
        commit = heads.get("branch.oid", "(initial)")
        if commit == "(initial)":
            return GitState()
        url = found.get("url", b"").decode(errors="replace").strip()
        dirty = any(not line.startswith("#") for line in status)
        properties = {
            "azureml.git.repository_uri": without_credentials(url),
            "azureml.git.branch": heads.get("branch.head", ""),
            "azureml.git.commit": commit,
            "azureml.git.dirty": str(dirty),
        }
        diff = found.get("diff", b"")
        text = diff[:_MOST].decode(errors="replace")
        if len(diff) > _MOST:
            text += f"\n… and {len(diff) - _MOST} bytes more\n"
        return GitState({name: value for name, value in properties.items() if value}, text)

    def _answer(self, name: str) -> bytes:
        asked = self._asked[name]
        try:
            answer, _ = asked.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            asked.kill()
            asked.communicate()
            return b""
        return answer if asked.returncode == 0 else b""


class Checkout(NamedTuple):
    """A commit of a repository, as files: never changed once there."""

    folder: Path
    repository: str
    told: GitState


def is_address(code: str) -> bool:
    """Whether it is the address of a repository, and no path of this machine."""
    return _ADDRESS.fullmatch(code) is not None


def checkout(address: str, kept: Path) -> Checkout:
    """The files of `git+URL@REF#FOLDER` (REF a branch, tag or whole commit; the default branch and
    the whole without), fetched into ``kept`` unless that commit is there.

    Raises UsageError with git's own words, and NotFound for a folder that it has not got.
    """
    found = _ADDRESS.fullmatch(address)
    assert found is not None
    url, ref = found["any"] or found["plain"] or found["short"], found["ref"] or "HEAD"
    shown = without_credentials(url)
    place = kept / hashlib.sha256(url.encode()).hexdigest()[:20]
    store = place / "repository"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    _touch(place)
    if not store.exists():
        _git(shown, "init", "--quiet", "--bare", str(store))
    # A name of our own: another may be fetching something else at this moment.
    mine = f"refs/allranks/{os.getpid()}"
    _git(shown, f"--git-dir={store}", "fetch", "--quiet", "--depth=1", url, f"+{ref}:{mine}")
    commit = _git(shown, f"--git-dir={store}", "rev-parse", f"{mine}^{{commit}}")
    goal = place / commit
    if not goal.exists():
        beside = Path(tempfile.mkdtemp(dir=place))
        into = (f"--git-dir={store}", f"--work-tree={beside}")
        env = {"GIT_INDEX_FILE": str(beside.with_suffix(".index"))}
        try:
            _git(shown, *into, "checkout", "--quiet", "--force", commit, "--", ".", env=env)
            beside.with_suffix(".index").unlink(missing_ok=True)
            beside.rename(goal)
        except OSError:
            if not goal.exists():  # else another was first
                raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    _touch(goal)
    folder = goal / (found["folder"] or "").strip("/")
    if not folder.resolve().is_relative_to(goal.resolve()) or not folder.exists():
        hint = f"what stands after # is a folder or file of the repository at {ref}"
        raise NotFound(f"there is no {found['folder']!r} in {shown}", where="code", hint=hint)
    properties = {
        "azureml.git.repository_uri": shown,
        "azureml.git.branch": "" if ref in ("HEAD", commit) else ref,
        "azureml.git.commit": commit,
        "azureml.git.dirty": "False",
    }
    name = re.split(r"[/:]", shown.rstrip("/"))[-1].removesuffix(".git")
    return Checkout(folder, name, GitState({k: v for k, v in properties.items() if v}))


def _touch(folder: Path) -> None:
    """In use: what is not for long is cleared away."""
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
        hint = "install git, or give a local folder"
        raise UsageError(
            f"git cannot be started: {error.strerror}", where="code", hint=hint
        ) from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
        why = without_credentials(said[0].partition(":")[2].strip() if said else "git failed")
        raise UsageError(
            f"the code cannot be fetched from {shown}: {why}",
            where="code",
            hint="git+URL@REF#FOLDER, REF a branch, a tag or a whole commit; "
            "credentials come from git's own settings",
        )
    return done.stdout.strip()
