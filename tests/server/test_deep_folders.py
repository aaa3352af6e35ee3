"""Jobs that leave folders deeper than recursion goes, and paths longer than Linux takes: each is
kept as far as it can be, what cannot be is named, and no job spoils what others need."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks import folder_trees
from tests.deep import DEEP, LEAF, PROGRAM
from tests.support import Allranks, answer, until

pytestmark = pytest.mark.slow
_DEEP_FILE = f"outputs/deep/{'/'.join([DEEP[0]] * DEEP[1])}/{LEAF}"
_TOO_LONG = "left out, because the path is too long for Linux: outputs/long/nnn"


@pytest.fixture(autouse=True)
def leave_nothing(home: Path, tmp_path: Path) -> Iterator[None]:
    """pytest removes old folders by recursion."""
    yield
    for each in (home / "jobs", home / "nodes", tmp_path / "fetched", home.parent / "other"):
        folder_trees.remove(each, ignore_errors=True)


def test_deep_outputs_are_listed_downloaded_backed_up_and_deleted(
    allranks: Allranks, home: Path, code: Path, tmp_path: Path
) -> None:
    (code / "deep.py").write_text(PROGRAM)
    done = allranks("run", "--name", "deep", "--", sys.executable, "deep.py", "outputs")
    assert done.returncode == 0, done.stderr
    assert allranks("run", "--name", "plain", "--", "true").returncode == 0
    listed = answer(allranks, "job", "files", "deep")
    paths = {each["path"] for each in listed}
    assert {_DEEP_FILE, "outputs/not utf-8 \udcff"} <= paths
    assert _TOO_LONG in allranks("job", "files", "deep").stderr
    fetched = allranks("job", "download", "deep", "-p", tmp_path / "fetched", errors="replace")
    assert fetched.returncode == 0
    assert _TOO_LONG in fetched.stderr
    assert (tmp_path / "fetched" / "artifacts" / _DEEP_FILE).read_text() == "leaf"

    backup = tmp_path / "b.tar"
    report = answer(allranks, "server", "backup", backup, "--with-files")
    (left_out,) = report["left_out"]
    assert left_out.startswith("jobs/deep/artifacts/outputs/long/n")
    again = allranks("job", "restart", "deep", "--fresh")
    assert again.returncode == 0, again.stderr
    allranks("job", "wait", "deep-r2")
    continued = allranks("job", "restart", "deep")
    assert continued.returncode == 0, continued.stderr
    allranks("job", "wait", "deep-r3")
    for name in ("deep", "deep-r2", "deep-r3", "plain"):
        gone = allranks("job", "delete", "--yes", name)
        assert gone.returncode == 0, gone.stderr
    assert allranks("gc", "--yes", "--older-than", "0d").returncode == 0
    assert [each for each in os.listdir(home / "jobs") if each[0] != "."] == []
    assert os.listdir(home / "nodes") == []
    assert "RecursionError" not in (home / "server.log").read_text()

    allranks("server", "stop")
    other = {"ALLRANKS_HOME": str(home.parent / "other")}
    restored = allranks("server", "restore", "--yes", backup, env=other)
    assert restored.returncode == 0, restored.stderr
    kept = home.parent / "other" / "jobs" / "deep" / "artifacts" / _DEEP_FILE
    assert kept.read_text() == "leaf"


def test_a_deep_state_is_kept_and_the_job_completes(
    allranks: Allranks, home: Path, code: Path, tmp_path: Path
) -> None:
    (code / "deep.py").write_text(PROGRAM)
    script = f'{sys.executable} deep.py "$ALLRANKS_STATE_DIR"'
    done = allranks("run", "--name", "deep", "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    fetched = allranks("state", "download", "deep", "-p", tmp_path / "fetched", errors="replace")
    assert fetched.returncode == 0, fetched.stderr
    within = _DEEP_FILE.removeprefix("outputs/")
    assert (tmp_path / "fetched" / "deep" / "shared" / within).read_text() == "leaf"
    until(lambda: not os.listdir(home / "nodes"))
    assert "clean-up" not in (home / "server.log").read_text()


def test_a_deep_working_folder_goes_on_in_a_restart(
    allranks: Allranks, home: Path, code: Path
) -> None:
    (code / "deep.py").write_text(PROGRAM)
    script = f'test -d mine && cat "mine/not utf-8 "*; mkdir mine && {sys.executable} deep.py mine'
    failed = allranks("run", "--name", "deep", "--", "bash", "-c", f"{script}; exit 3")
    assert failed.returncode == 3, failed.stderr
    again = allranks("job", "restart", "deep", "--stream")
    assert "name" in again.stdout
    assert "too long for Linux: mine/long/nnn" in again.stderr
    assert "defect" not in again.stderr
