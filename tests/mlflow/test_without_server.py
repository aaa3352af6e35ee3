"""Scripts of MLflow's clients where no MLflow server is: their metrics are in the record."""

import json
from pathlib import Path

import pytest

from tests.frameworks.environments import environment
from tests.support import Allranks

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

SCRIPT = """
import os, mlflow
mlflow.log_metric("loss", 1.0, step=0)
mlflow.log_metric("loss", 0.5, step=1)
with mlflow.start_run(run_name="fold", nested=True):
    mlflow.log_metric("loss", 0.25)
mlflow.end_run()
with mlflow.start_run(run_name="it's \\u00fc"):
    mlflow.log_metrics({"a/b": 2, "c": float("nan")}, step=3)
"""


# MLflow fails when two processes create the same database, so one rank begins.
RANKS = """
import os, mlflow, pathlib, sys, time
def said(rank, what):
    return pathlib.Path(f"{what}-{os.environ['ALLRANKS_ATTEMPT']}-{rank}")
def wait_for(path):
    while not path.exists():
        time.sleep(0.05)
rank = int(os.environ["RANK"])
if rank:
    wait_for(said(0, "began"))
mlflow.log_metric("loss", rank)
said(rank, "began").touch()
wait_for(said(1 - rank, "began"))
mlflow.end_run()
said(rank, "ended").touch()
wait_for(said(1 - rank, "ended"))
sys.exit(0 if os.environ["ALLRANKS_ATTEMPT"] == "2" else 3)
"""


@pytest.mark.parametrize("client", ["mlflow2", "mlflow3"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_metrics_are_in_the_record(allranks: Allranks, code: Path, client: str, nodes: int):
    (code / "train.py").write_text(SCRIPT)
    env = {"VIRTUAL_ENV": str(environment(client))}
    done = allranks("run", "-n", nodes, "--", "python", "train.py", env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(allranks("job", "metrics", "-", "--json").stdout)
    assert {name: [each["value"] for each in points] for name, points in found.items()} == {
        "loss": [1, 0.5] * nodes,
        "fold/loss": [0.25] * nodes,
        "it's \u00fc/a/b": [2] * nodes,
        "it's \u00fc/c": ["NaN"] * nodes,
    }
    assert [each["step"] for each in found["loss"][:2]] == [0, 1]


def test_ranks_and_attempts_do_not_mix(allranks: Allranks, code: Path):
    """Ranks of a node share their files, and attempts of a job in place do, too."""
    (code / "train.py").write_text(RANKS)
    env = {"VIRTUAL_ENV": str(environment("mlflow3"))}
    words = ("run", "--in-place", "--procs-per-node", 2, "--max-attempts", 2)
    done = allranks(*words, "--", "python", "train.py", env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(allranks("job", "metrics", "-", "--json").stdout)
    points = [(each["attempt"], each["value"]) for each in found["loss"]]
    assert sorted(points) == [(1, 0), (1, 1), (2, 0), (2, 1)]
