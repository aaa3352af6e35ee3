"""The benchmarks need nothing beyond allranks itself."""

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import psutil
import pytest

from bench import procs

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Packages of the extras whose modules are called otherwise.
MODULES = {"import-linter": "importlinter", "psycopg": "psycopg", "pytest-xdist": "xdist"}


@pytest.mark.medium
def test_the_benchmarks_start_without_any_extra(tmp_path: Path) -> None:
    extras = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    for wanted in extras:
        name = re.split(r"[\[<>=]", wanted)[0]
        module = MODULES.get(name, name.replace("-", "_").lower())
        (tmp_path / f"{module}.py").write_text(f"raise ImportError({name!r})")
    assert (tmp_path / "psutil.py").exists()
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "agents" in done.stdout


def test_a_python_without_allranks_is_told_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "bench", "--help"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "has no allranks to measure" in done.stderr
    assert "hint: ./demo makes .venv" in done.stderr


def test_the_time_of_a_process_is_what_psutil_says() -> None:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    times = psutil.Process().cpu_times()
    assert procs.cpu_seconds(os.getpid()) == pytest.approx(times.user + times.system, abs=0.05)
