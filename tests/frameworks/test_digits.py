"""The digits example with real PyTorch: as a command, as a file, and with torchrun on each node."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Allranks

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    folder = tmp_path_factory.mktemp("digits") / "images"
    subprocess.run([sys.executable, DIGITS / "make_data.py", folder], check=True)
    return folder


@pytest.mark.end_to_end
def test_three_nodes_reach_95_percent(shared: Allranks, code: Path, data: Path) -> None:
    done = shared(
        *("run", "-n", 3, "-C", DIGITS, "--name", "digits-3", "-i", f"data={data}", "--"),
        *("python", "train.py", "--data", "${{inputs.data}}", "--epochs", "4"),
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} " in done.stdout for rank in range(3))
    shared("job", "download", "digits-3", "-p", "got")
    outputs = code / "got" / "artifacts" / "outputs"
    metrics = json.loads((outputs / "metrics.json").read_text())
    assert metrics["accuracy"] >= 0.95
    assert metrics["ranks"] == 3
    assert (outputs / "model.pt").stat().st_size > 0


def test_the_job_file_with_two_ranks_on_a_node(shared: Allranks, code: Path, data: Path) -> None:
    done = shared(
        *("job", "create", "-f", DIGITS / "job.yml", "--stream", "--name", "digits-file"),
        *("--set", f"inputs.data.path={data}", "--set", "inputs.epochs=1"),
        *("--set", "resources.instance_count=1"),
        *("--set", "distribution.process_count_per_instance=2"),
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epoch 1/1  validation accuracy" in done.stdout


def test_torchrun_on_each_node_binds_master_port(shared: Allranks, code: Path, data: Path) -> None:
    """One rank a node, which is torchrun, as in many scripts for Azure ML and SageMaker."""
    script = (
        "python -m torch.distributed.run --nnodes $AZUREML_NODE_COUNT --node_rank $NODE_RANK "
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT --nproc_per_node 1 "
        "train.py --data $AZURE_ML_INPUT_data --epochs 1"
    )
    done = shared(
        *("run", "-n", 2, "-C", DIGITS, "-i", f"data={data}", "--", "bash", "-c", script),
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validation accuracy" in done.stdout
