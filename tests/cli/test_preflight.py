"""`allranks doctor --job`: real gangs of this machine, with what is wrong put there on purpose."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import CLI, PATIENCE, Allranks, environment, until

# Real servers and gangs: one to ten seconds a test.
pytestmark = pytest.mark.slow

JOB = """\
command: python train.py --data ${{inputs.data}}
code: src
inputs:
  data: {type: uri_file, path: ./numbers.txt}
distribution: {type: pytorch}
resources: {instance_count: 3}
"""


@pytest.fixture
def job(code: Path) -> Path:
    (code / "src").mkdir()
    (code / "src" / "train.py").write_text("import json\n")
    (code / "numbers.txt").write_text("1\n")
    (code / "job.yml").write_text(JOB)
    return code / "job.yml"


def doctor(
    allranks: Allranks, *words: object, timeout: float = 50 * PATIENCE, **options: Any
) -> tuple[int, list[dict[str, Any]]]:
    words = ("--job", "job.yml", "--json", "--timeout", timeout, *words)
    done = allranks("doctor", *words, **options)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def wrong(found: list[dict[str, Any]]) -> list[str]:
    return [f"{each['what']}: {each['found']}" for each in found if each["state"] == "bad"]


def states(allranks: Allranks) -> list[str]:
    """How the gangs that were tried have ended."""
    return [each["status"] for each in json.loads(allranks("job", "list", "--json").stdout)]


def silent_on(folder: Path, node: int) -> Path:
    """An environment whose Python never answers on one node."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    waits = f'if [ "$ALLRANKS_NODE_RANK" = {node} ]; then exec sleep 600; fi'
    python.write_text(f'#!/bin/sh\n{waits}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return folder


def test_a_job_that_can_run(allranks: Allranks, job: Path) -> None:
    code, found = doctor(allranks)
    assert (code, wrong(found)) == (0, [])
    told = {each["what"]: each["found"] for each in found}
    assert told["gang"].startswith("3 nodes on ")
    assert told["all-reduce"] == "3 nodes have the right sum"
    assert told["script"].startswith("train.py parses on Python 3.")
    assert told["inputs"] == "1 readable on every node"
    assert "GLOO_SOCKET_IFNAME=lo" in " ".join(each["found"] for each in found)
    assert states(allranks) == ["Completed"]
    shown = allranks("doctor", "--job", job, "-v")
    assert "✓ gang           3 nodes on " in shown.stdout


def test_a_node_that_does_not_answer_is_named_in_time_and_nothing_is_left(
    allranks: Allranks, job: Path, tmp_path: Path
) -> None:
    env = {"VIRTUAL_ENV": str(silent_on(tmp_path / "env", 1))}

    # The others meet without it; a machine that is busy needs more time for that.
    for limit in (10, 30, 90):
        began = time.monotonic()
        code, found = doctor(allranks, env=env, timeout=limit)
        assert time.monotonic() - began < 300  # it is silent for ten minutes
        until(lambda: set(states(allranks)) <= {"Canceled"})
        if "2 nodes have the right sum" in [each["found"] for each in found]:
            break
    assert (code, wrong(found)) == (1, ["gang: node 1 does not answer: its Python did not answer"])
    assert next(each for each in found if each["state"] == "bad")["node"] == 1
    assert "2 nodes have the right sum" in [each["found"] for each in found]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_gang_behind(
    allranks: Allranks, home: Path, job: Path, tmp_path: Path, number: signal.Signals
) -> None:
    allranks("server", "start")
    env = environment(home) | {"VIRTUAL_ENV": str(silent_on(tmp_path / "env", 0))}
    argv = [sys.executable, "-c", CLI, "doctor", "--job", str(job), "--timeout", "600"]
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as doctor:
        until(lambda: states(allranks) == ["Running"])
        doctor.send_signal(number)
        _, said = doctor.communicate(timeout=120)
    assert (doctor.returncode, said.strip()) == (130, "interrupted")
    until(lambda: states(allranks) == ["Canceled"])


def test_a_server_that_hangs_does_not_hold_it_up(allranks: Allranks, job: Path) -> None:
    allranks("server", "start")
    told = json.loads(allranks("server", "status", "--json").stdout)
    os.kill(told["pid"], signal.SIGSTOP)
    try:
        began = time.monotonic()
        code, found = doctor(allranks, timeout=10)
        assert time.monotonic() - began < 50 * PATIENCE  # it hangs for good
    finally:
        os.kill(told["pid"], signal.SIGCONT)
    assert (code, wrong(found)) == (1, ["gang: the server did not answer within the time limit"])
    # What the server reads of it once it goes on ends by its own limit, at the latest.
    until(lambda: set(states(allranks)) <= {"Completed", "Canceled"})


@pytest.mark.parametrize(
    "words",
    [
        ("--timeout", 60),
        ("--job", "job.yml", "--timeout", 1),
        ("--job", "job.yml", "--timeout", 1e12),
    ],
)
def test_a_time_for_nothing_is_refused(allranks: Allranks, job: Path, words: tuple[Any]) -> None:
    done = allranks("doctor", *words)
    assert done.returncode == 2
    assert "--timeout" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_can_be_read_off_the_file(allranks: Allranks, job: Path) -> None:
    job.write_text(JOB.replace("instance_count", "instance_cout"))
    code, found = doctor(allranks)
    assert code == 1
    (only,) = found
    assert only["found"].startswith("job.yml:6: resources.instance_cout: ")
    assert "instance_count" in only["hint"]
    assert states(allranks) == []


def test_the_script_its_modules_and_the_inputs(allranks: Allranks, job: Path) -> None:
    (job.parent / "src" / "train.py").write_text("import horovod.torch\nx = (\n")
    (job.parent / "numbers.txt").unlink()
    code, found = doctor(allranks, "--set", "resources.instance_count=1")
    assert code == 1
    assert [line.partition(":")[0] for line in wrong(found)] == ["script", "inputs", "inputs"]
    (job.parent / "src" / "train.py").write_text("import horovod.torch\n")
    (job.parent / "numbers.txt").write_text("1")
    code, found = doctor(allranks, "--set", "resources.instance_count=2")
    said = "modules: train.py:1 imports horovod, which the environment does not have"
    assert (code, wrong(found)) == (1, [said])


def test_the_output_of_another_job_is_an_input(allranks: Allranks, job: Path) -> None:
    words = ["bash", "-c", 'echo hi > "$AZURE_ML_OUTPUT_kept/x"']
    made = allranks("run", "--name", "first", "-o", "kept", "--", *words)
    assert made.returncode == 0, made.stderr
    other = "inputs.data={type: uri_folder, path: 'azureml://jobs/first/outputs/kept'}"
    code, found = doctor(allranks, "--set", other, "--set", "resources.instance_count=1")
    assert (code, wrong(found)) == (0, [])


def test_an_output_in_a_folder_beside_the_job_file(allranks: Allranks, job: Path) -> None:
    out = "outputs.model={type: uri_folder, path: ./out}"
    use = "command=python train.py --data ${{inputs.data}} ${{outputs.model}}"
    words = ("--set", out, "--set", use, "--set", "resources.instance_count=1")
    code, found = doctor(allranks, *words)
    assert (code, wrong(found)) == (0, [])


def test_a_gang_that_never_fits(allranks: Allranks, job: Path) -> None:
    code, found = doctor(allranks, "--set", "resources.instance_count=65")
    assert code == 1
    assert wrong(found)[0].startswith("gang: the job can never run on this machine: it needs 65")
    assert states(allranks) == []


def test_no_room_now_is_worth_knowing_and_the_queue_is_left(allranks: Allranks, job: Path) -> None:
    cpus = ("--set", f"resources.properties.local.cpus={len(os.sched_getaffinity(0))}")
    allranks("run", "--detach", "--name", "hog", *cpus, "--", "sleep", "600")
    one = ("--set", "resources.instance_count=1")
    code, found = doctor(allranks, *cpus, *one, timeout=15)  # it waits for room all the while
    assert (code, wrong(found)) == (0, [])
    (gang,) = [each for each in found if each["what"] == "gang"]
    assert gang["state"] == "note"
    assert "the compute has no free capacity: waits for" in gang["found"]
    until(lambda: sorted(states(allranks)) == ["Canceled", "Running"])


def test_infiniband_that_is_seen(allranks: Allranks, job: Path, tmp_path: Path) -> None:
    port = tmp_path / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, text in (("state", "4: ACTIVE"), ("link_layer", "InfiniBand"), ("rate", "400 Gb")):
        (port / name).write_text(text)
    env = {"ALLRANKS_SYS_CLASS": str(tmp_path / "class")}
    _, found = doctor(allranks, "--set", "resources.instance_count=2", env=env)
    said = [each["found"] for each in found]
    assert "mlx5_0:1 InfiniBand 400 Gb/s on nodes 0, 1" in said
    assert any(each.startswith("NCCL_IB_HCA==mlx5_0:1  the active InfiniBand") for each in said)
    plain = allranks("doctor", "--verbose", env=env)
    assert "mlx5_0:1 InfiniBand 400 Gb/s" in plain.stdout
    assert "NCCL_IB_HCA==mlx5_0:1" in plain.stdout


def test_wrong_use(allranks: Allranks) -> None:
    done = allranks("doctor", "--job", "nosuch.yml")
    assert (done.returncode, "file not found" in done.stderr) == (2, True)
    assert allranks("doctor", "--set", "a=b").returncode == 2
