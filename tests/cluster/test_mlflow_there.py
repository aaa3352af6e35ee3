"""Ranks on other hosts log to their job's run in MLflow, which runs beside the server."""

from __future__ import annotations

import json

import pytest

from tests.cluster.conftest import Cluster
from tests.frameworks.environments import environment
from tests.support import Allranks, until

pytestmark = [pytest.mark.cluster, pytest.mark.frameworks, pytest.mark.timeout(400)]

SCRIPT = """
import os, socket, mlflow
rank = int(os.environ["RANK"])
mlflow.log_metric(f"rank{rank}", rank)
mlflow.log_text("x" * 3_000_000, f"{socket.gethostname()}.txt")
print(socket.gethostname(), [f.path for f in mlflow.MlflowClient().list_artifacts(
    mlflow.active_run().info.run_id)], flush=True)
"""


@pytest.mark.parametrize("client", ["mlflow2", "mlflow3"])
def test_ranks_of_all_hosts_log_to_the_one_run(
    cluster: Cluster, allranks: Allranks, code, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("ctl", "n1", "n2", "n3"):
        cluster("heal", host)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    python = str(environment("mlflow3") / "bin" / "python")
    assert allranks("server", "start", env={"ALLRANKS_MLFLOW_PYTHON": python}).returncode == 0
    make = ("compute", "create", "s", "--type", "slurm", "--partition", "main", "--default")
    until(lambda: allranks(*make).returncode == 0, 30)
    (code / "script.py").write_text(SCRIPT)
    words = ("run", "--name", "hosts", "-n", 3, "--", "python", "script.py")
    done = allranks(*words, env={"VIRTUAL_ENV": str(environment(client))}, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    metrics = json.loads(allranks("job", "metrics", "hosts", "--json").stdout)
    assert {name: metrics[f"rank{name}"][0]["value"] for name in range(3)} == {0: 0, 1: 1, 2: 2}
    assert all(f"n{host}.txt" in done.stdout for host in (1, 2, 3))
    allranks("server", "stop", "--all")
    until(lambda: not cluster.slurm("squeue", "-h"), seconds=40)
