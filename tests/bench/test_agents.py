"""The benchmark speaks the wire that the server understands: agents of its own are all it has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_few_simulated_agents_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "agents.json"
    size = ("--agents", "4", "--gangs", "2", "--gang-rounds", "1", "--agents-watched", "1")
    done = subprocess.run(
        [sys.executable, "-m", "bench", "agents", *size, "--json", path],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(path.read_text())
    assert told["wrong"] == []
    assert told["samples"]["s"]["hello → GO, gangs of 2"]
    assert told["samples"]["s"]["an answer to what agents say"]
