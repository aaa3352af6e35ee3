"""The scripts that measure the source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.call_path import PATHS, Call, counted
from scripts.sizes import verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("lines", "word", "fails"),
    [(1000, "", False), (1001, "warning", False), (1010, "warning", False), (1011, "error", True)],
)
def test_more_lines_than_agreed_warn_and_one_percent_more_fails(lines, word, fails):
    sentence, is_failure = verdict(lines, 1000)
    assert (sentence.partition(":")[0], is_failure) == (word, fails)


def test_a_shallow_clone_says_that_nothing_is_compared(tmp_path: Path):
    """The commit of the release is not in it."""
    for name in ("scripts", "src/allranks/serve"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "scripts" / "sizes.py").write_text((ROOT / "scripts" / "sizes.py").read_text())
    (tmp_path / "src" / "allranks" / "serve" / "a.py").write_text("A = 1\n" * 102)
    (tmp_path / "pyproject.toml").write_text("[tool.allranks.sizes]\nrelease = '1a'\nlines = 100\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    argv = [sys.executable, "scripts/sizes.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    compared, source, error = done.stdout.splitlines()
    assert compared == "not compared: this clone has no commit 1a; it may be shallow"
    assert source == "source: 102 lines in 1 files"
    assert error.startswith("error: 2 lines above the 100")
    assert done.returncode == 1


def test_what_comes_back_was_entered_before():
    calls = [Call("a.m:f", "a.n:g"), Call("a.n:g", "b.o:h"), Call("b.o:h", "a.m:k")]
    calls.append(Call("a.m:k", "a.n:g"))
    path = PATHS["job"]._replace(begins="a.m:f")
    assert counted(path, calls) == "enters a module 4 times and comes back 2"


@pytest.mark.slow
def test_the_path_of_a_real_job_is_counted():
    argv = [sys.executable, "scripts/call_path.py", "job", "--calls"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " -> allranks.core.lifecycle.decide:decide" in done.stdout
    assert "Loop._advance enters a module" in done.stdout
