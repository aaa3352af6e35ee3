"""`-` is the newest job of this terminal, or else of the user; a prefix goes on to mean its job."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.sdk.jobs import terminal
from tests.support import CLI, Allranks, environment, until


class Session:
    """A terminal's session: a shell that runs one command line after the other."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(home),
            cwd=folder,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *words: str) -> str:
        """What the command prints on both streams."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        line = shlex.join([sys.executable, "-c", CLI, *words])
        self._shell.stdin.write(f"{line} 2>&1; echo; echo -- end\n")
        self._shell.stdin.flush()
        printed = ""
        while not printed.endswith("\n-- end\n"):
            printed += self._shell.stdout.readline()
        return printed.removesuffix("\n-- end\n")

    def close(self) -> None:
        self._shell.communicate(timeout=60)


@pytest.mark.slow
def test_each_terminal_has_a_newest_job_of_its_own(
    allranks: Allranks, home: Path, code: Path
) -> None:
    one, two, three = (Session(home, code) for _ in range(3))
    one("run", "--name", "ones", "--", "true")
    two("run", "--name", "twos", "--", "true")
    newest = "is ones, the newest job of this terminal"
    assert one("job", "logs", "-") == f"note: - {newest}\n"
    assert one("job", "logs", "@last") == f"note: @last {newest}\n"
    assert one("job", "logs", "-q", "-") == ""
    assert three("job", "logs", "-") == "note: - is twos, your newest job\n"
    two("job", "archive", "--yes", "-")
    assert two("job", "logs", "-") == "note: - is ones, your newest job\n"
    assert '"name": "ones"' in one("job", "show", "-", "--json")

    # A restart counts, a deleted job does not.
    one("job", "restart", "ones")
    one("job", "wait", "ones-r2")
    assert "- is ones-r2, the newest job of this terminal" in one("job", "logs", "-")
    one("job", "delete", "--yes", "ones-r2")
    assert newest in one("job", "logs", "-")
    folder = home / "terminals"
    assert len([*folder.iterdir()]) == 2
    for each in (one, two):
        each.close()
    # The next terminal removes the files of those that were closed.
    three("run", "--name", "threes", "--", "true")
    assert len([*folder.iterdir()]) == 1
    three.close()


def test_without_a_session_or_a_writable_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ALLRANKS_SERVER", raising=False)
    # In a container the tests' own session may have no leader.
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    assert terminal.submitted() == []
    terminal.remember(["a", "b"])
    terminal.remember(["a"])
    assert terminal.submitted() == ["a", "b"]
    monkeypatch.setenv("ALLRANKS_SERVER", "http://elsewhere:1/")
    assert terminal.submitted() == []
    terminal.remember(["c"])
    monkeypatch.setenv("ALLRANKS_SERVER", "http://elsewhere:1")
    assert terminal.submitted() == ["c"]
    terminal.remember(f"j{number}" for number in range(3000))
    assert terminal.submitted()[:2] == ["j2999", "j2998"]

    monkeypatch.setattr(os, "getsid", lambda _: 0)  # its leader is outside of the container
    assert terminal.submitted() == []
    terminal.remember(["d"])
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "file"))
    terminal.remember(["e"])
    assert terminal.submitted() == []


@pytest.mark.slow
def test_a_prefix_goes_on_to_mean_its_job_after_restarts(allranks: Allranks) -> None:
    allranks("run", "--name", "calm_otter", "--", "true")
    for _ in range(9):
        assert allranks("job", "restart", "calm").returncode == 0
    assert json.loads(allranks("job", "show", "calm", "--json").stdout)["name"] == "calm_otter"
    done = allranks("job", "show", "calm_otter-r")
    assert "is a prefix of several job names" in done.stderr
    assert allranks("job", "logs", "calm_otter-r10").returncode == 0
    allranks("run", "--name", "calm_seal", "--", "true")
    done = allranks("job", "show", "calm")
    assert "use a longer prefix: calm_seal, calm_otter\n" in done.stderr
    ended = {"Completed", "Failed"}
    until(lambda: {e["status"] for e in _jobs(allranks)} <= ended)


def _jobs(allranks: Allranks) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads(allranks("job", "list", "--json").stdout)
    return listed
