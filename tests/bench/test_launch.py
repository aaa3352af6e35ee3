"""The benchmark runs and writes what it should; how fast anything is, is not tested."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_launch_without_torch_writes_every_sample(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "launch", "--rounds", "1", "--no-torch", "--json", path],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out: torchrun (no torch here" in done.stdout

    told = json.loads(path.read_text())
    assert told["bench"] == "launch"
    assert {"at", "machine", "versions", "orders", "samples", "bars"} <= set(told)
    assert {"cpus", "python", "allranks", "load_1_5_15"} <= set(told["machine"])
    assert told["wrong"] == []
    assert len(told["samples"]["s"]) >= 5
    for name, samples in told["samples"]["s"].items():
        assert len(samples) == 1, name
        assert samples[0] > 0, name
    assert sorted(told["orders"][0]) == sorted(told["samples"]["s"])
