"""The program of parallel steps, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from allranks.agent import inside
from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.log_tail import Ending, finding

PROGRAM = Path(inside.__path__[0]) / "allranks_parallel_step.py"
SCRIPT = """
def run(mini_batch):
    for file in mini_batch:
        if "bad" in file: raise ValueError("no image")
    return mini_batch
"""
OPTIONS = {
    "entry_script": "score.py",
    "mini_batch_size": 12,
    "mini_batch_error_threshold": -1,
    "error_threshold": 0,
    "max_retries": 1,
    "timeout": 60,
    "file_name": "rows",
}


def score(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "score.py").write_text(SCRIPT)
    (folder / "out").mkdir()
    words = [sys.executable, str(PROGRAM), json.dumps(OPTIONS), "in", "out", "--"]
    rank = {"RANK": "0", "WORLD_SIZE": "1", "ALLRANKS_JOB": "j", "MASTER_PORT": "0"}
    return subprocess.run(
        words, cwd=folder, env={**os.environ, **rank}, capture_output=True, text=True, timeout=60
    )


def test_a_mini_batch_that_fails_is_the_cause_and_its_files_are_named(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for name in ["bad one", *(f"{number:02}" for number in range(13))]:
        (tmp_path / "in" / name).touch()
    done = score(tmp_path)
    assert done.returncode == 1
    assert "mini-batch 1 failed: ValueError: no image; its files: 12, bad one\n" in done.stderr
    assert done.stderr.count("attempt ") == 2
    assert "2 files failed; the limit is 0\n" in done.stderr
    cause = finding(done.stderr.splitlines(), Ending(1))
    assert cause is not None
    assert (cause.cause, cause.where) == (Cause.SCRIPT_EXCEPTION, f"{tmp_path}/score.py:4")


def test_a_batch_without_files_is_an_error(tmp_path: Path):
    (tmp_path / "in").mkdir()
    done = score(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "the input of the batch endpoint has no files\n"
