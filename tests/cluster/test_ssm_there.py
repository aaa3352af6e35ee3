"""Lines of simple-sagemaker on Slurm: three hosts that share a disk and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.test_slurm import slurm
from tests.compat.ssm.test_run_line import WORKER, tree
from tests.support import Allranks, answer

__all__ = ["slurm"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

TASK = ("ssm", "run", "-p", "birds", "-t", "one", "-e", "worker.py")
HOSTS = ("algo-1", "algo-2", "algo-3")


@pytest.fixture
def lines(slurm: Allranks, code: Path) -> Allranks:
    (code / "worker.py").write_text(WORKER)
    (code / "data").mkdir()
    for name in "abcd":
        (code / "data" / name).write_text(name)
    return slurm


def log_of(folder: Path, node: int) -> str:
    return (folder / "logs" / f"logs{node}").read_text()


def test_tasks_of_three_hosts_follow_one_another(lines: Allranks, code: Path) -> None:
    words = ("--ic", 3, "-i", "data", "ShardedByS3Key", "--md", "score", "Score=(.*?);")
    words += ("-o", "one", "--download_state", "--download_model", "--download_output")
    done = lines(*TASK, *words, "--tag", "team", "vision")
    assert done.returncode == 0, done.stderr
    assert tree(code / "one") == [
        *("logs/logs0", "logs/logs1", "logs/logs2"),
        *(f"model/model_{host}" for host in HOSTS),
        "output/output_algo-1",  # only the first host's
        *(f"state/{host}/state_{host}" for host in HOSTS),
    ]
    shards = (["a", "d"], ["b"], ["c"])
    for node, shard in enumerate(shards):
        said = log_of(code / "one", node)
        assert f"host {node} 3" in said
        assert f"channels {{'data': {shard}}}" in said
    (job,) = answer(lines, "job", "list", "--tag", "team=vision")
    assert job["compute"] == "s"
    assert list(answer(lines, "job", "metrics", job["name"])) == ["score"]

    again = lines(*TASK, *words)
    assert "was completed by the job" in again.stderr

    # Another task reads what it left, the state of one host alone.
    inputs = ("--iit", "m", "one", "model", "--iit", "o", "one", "output", "ShardedByS3Key")
    inputs += ("--iit", "s", "one", "state", "FullyReplicated", "algo-3")
    two = ("ssm", "run", "-p", "birds", "-t", "two", "-e", "worker.py", "--ic", 2, "-o", "two")
    chained = lines(*two, *inputs)
    assert chained.returncode == 0, chained.stderr
    both = {"m": ["model.tar.gz"], "o": ["output.tar.gz"], "s": ["state_algo-3"]}
    assert f"channels {both}" in log_of(code / "two", 0)
    assert f"channels {both | {'o': []}}" in log_of(code / "two", 1)

    # The next job of the task finds the state on every host, until it is cleared.
    kept = lines(*TASK, "--ic", 3, "--fr", "-o", "kept")
    assert kept.returncode == 0, kept.stderr
    for node, host in enumerate(HOSTS):
        assert f"{host}/state_{host}" in log_of(code / "kept", node)
    cleared = lines(*TASK, "--ic", 3, "--fr", "--cs")
    assert cleared.stdout.count("state []") == 3, cleared.stderr


def test_one_host_that_fails_fails_the_task(lines: Allranks, code: Path) -> None:
    line = ("ssm", "shell", "-p", "exit", "--ic", 3)
    done = lines(*line, "-t", "code", "-o", "o", "--cmd_line", "exit $((SSM_HOST_RANK / 2 * 7))")
    assert done.returncode == 1
    assert "the task code failed:" in done.stderr
    assert "node 2" in done.stderr
    assert tree(code / "o")[0] == "logs/logs0"
    file = "echo why > $SAGEMAKER_BASE_DIR/output/failure"
    written = lines(*line, "-t", "file", "--cmd_line", f"[ $SSM_HOST_RANK != 1 ] || {file}")
    assert written.returncode == 1
    assert "why" in written.stderr


def test_hosts_have_sagemakers_paths_and_names(lines: Allranks, code: Path) -> None:
    names = "getent hosts $(echo $SM_HOSTS | tr -d '[]\"' | tr , ' ')"
    look = f"pwd; echo m > /opt/ml/model/$SM_CURRENT_HOST; {names}"
    words = ("-p", "real", "-t", "paths", "--ic", 3, "-o", "o", "--download_model")
    done = lines("ssm", "shell", *words, "--cmd_line", look)
    assert done.returncode == 0, done.stderr
    for node in range(3):
        pwd, *found = log_of(code / "o", node).splitlines()
        assert pwd == "/opt/ml/code"
        assert [each.split()[1] for each in found] == list(HOSTS)
        assert len({each.split()[0] for each in found}) == 3
    assert tree(code / "o" / "model") == list(HOSTS)
