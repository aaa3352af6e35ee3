"""Jobs on the nodes of those before, in sweeps and pipelines on a real Slurm; what befalls them."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import ended, hosts, ready, show, slurm
from tests.support import Allranks, kill_server, processes_of, until

__all__ = ["slurm"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]


def begin(slurm: Allranks, name: str, script: str, *options: object, trials: int = 4) -> None:
    """Submit a sweep of a script whose first argument is the trial's number."""
    choice = f"x=choice({', '.join(map(str, range(trials)))})"
    words = ("run", "--detach", "--name", name, "--sweep", choice, "--sampler", "grid")
    words += ("--minimize", "loss", "-m", r"loss=loss (\d+)", *options)
    done = slurm(*words, "--", "bash", "-c", script, "trial", "${{search_space.x}}")
    assert done.returncode == 0, done.stderr


def launches(slurm: Allranks, name: str) -> list[str]:
    """The launches that a sweep has had."""
    lines = slurm("job", "list", "--parent", name, "--limit", 100).stdout
    return sorted({word for word in lines.split() if word.startswith(f"{name}_nodes_")})


def agents_of(home: Path, launch: str) -> list[psutil.Process]:
    """The agent of a launch and its keeper, without the trial's."""
    mark = f"nodes/{launch}.1/0"
    return [
        each
        for each in processes_of(home)
        if "allranks.agent" in " ".join(each.cmdline())
        and each.environ().get("ALLRANKS_AGENT_DIR", "").endswith(mark)
    ]


def test_trials_run_on_the_nodes_of_those_before(slurm: Allranks, cluster: Cluster):
    begin(slurm, "kept", 'echo "loss $1"', "-n", 2, "--concurrent", 1)
    sweep = ended(slurm, "kept")
    assert sweep["counts"] == {"Completed": 4}
    assert [each["value"] for each in sweep["trials"]] == [0, 1, 2, 3]
    assert launches(slurm, "kept") == ["kept_nodes_1"]
    assert [hosts(slurm, f"kept_{n}") for n in range(4)] == [hosts(slurm, "kept_nodes_1")] * 4
    until(lambda: not cluster.slurm("squeue", "-h"))
    launch = show(slurm, "kept_nodes_1")
    assert launch["status"] == "Canceled"
    assert launch["spec"]["session"] == {"idle_timeout": None}  # however long a trial takes


def test_a_full_cluster_gives_what_it_has(slurm: Allranks, cluster: Cluster):
    alone = "resources.properties.slurm.exclusive=true"
    begin(slurm, "full", 'echo "loss $1"; sleep 2', "-n", 2, "--set", alone)
    assert ended(slurm, "full")["counts"] == {"Completed": 4}
    began = [n for n in launches(slurm, "full") if show(slurm, n)["started_at"] is not None]
    assert len(began) == 1  # of three hosts two are one launch
    until(lambda: not cluster.slurm("squeue", "-h"))


def test_it_can_be_turned_off(slurm: Allranks):
    begin(slurm, "own", 'echo "loss $1"', "--no-reuse-nodes", trials=2)
    assert ended(slurm, "own")["counts"] == {"Completed": 2}
    assert not launches(slurm, "own")


# The first attempt of the first trial waits for its end, others go on.
WAITS = 'echo "loss $1 on"; [ "$ALLRANKS_ATTEMPT$1" != 10 ] || sleep 600'


def test_a_trial_whose_launch_dies_runs_again_on_another(
    slurm: Allranks, cluster: Cluster, home: Path
):
    begin(slurm, "dies", WAITS, "--concurrent", 1, trials=2)
    until(lambda: " on" in slurm("job", "logs", "dies_0").stdout, 60)
    for process in agents_of(home, "dies_nodes_1"):
        os.kill(process.pid, signal.SIGKILL)
    assert ended(slurm, "dies", 120)["counts"] == {"Completed": 2}
    assert [show(slurm, f"dies_{n}")["attempts"] for n in range(2)] == [2, 1]
    assert launches(slurm, "dies") == ["dies_nodes_1", "dies_nodes_2"]
    until(lambda: not cluster.slurm("squeue", "-h"))


def test_a_killed_server_finds_launches_and_trials_again(
    slurm: Allranks, cluster: Cluster, home: Path
):
    go = home / "go"
    script = f'echo "loss $1 on"; until [ -e {shlex.quote(str(go))} ]; do sleep 0.1; done'
    begin(slurm, "again", script, "--concurrent", 1, trials=3)
    until(lambda: " on" in slurm("job", "logs", "again_0").stdout, 60)
    kill_server(home)
    go.touch()
    assert ended(slurm, "again", 120)["counts"] == {"Completed": 3}
    assert [show(slurm, f"again_{n}")["attempts"] for n in range(3)] == [1, 1, 1]
    assert launches(slurm, "again") == ["again_nodes_1"]
    until(lambda: not cluster.slurm("squeue", "-h"))


def test_canceling_a_trial_frees_its_nodes_and_canceling_the_sweep_ends_them(
    slurm: Allranks, cluster: Cluster, home: Path
):
    begin(slurm, "stop", 'echo "loss $1 on"; sleep 600', "--concurrent", 1)
    until(lambda: " on" in slurm("job", "logs", "stop_0").stdout, 60)
    assert slurm("job", "cancel", "stop_0").returncode == 0
    until(lambda: " on" in slurm("job", "logs", "stop_1").stdout, 60)
    assert launches(slurm, "stop") == ["stop_nodes_1"]
    assert slurm("job", "cancel", "stop").returncode == 0
    assert ended(slurm, "stop")["counts"] == {"Canceled": 2}
    until(lambda: not cluster.slurm("squeue", "-h"))
    until(lambda: not [p for p in processes_of(home) if "allranks.agent" in p.cmdline()])
    ready(cluster)


# ---------------------------------------------------------------- pipelines


def pipeline(slurm: Allranks, home: Path, name: str, *words: object, **steps: Any) -> None:
    """Submit a pipeline of steps, each of which runs after the one before it."""
    for step, before in zip(list(steps)[1:], steps, strict=False):
        steps[step]["inputs"] = {"from": f"${{{{parent.jobs.{before}.outputs.out}}}}"}
    for each in steps.values():
        each["outputs"] = {"out": {}}
    file = home / f"{name}.yml"
    file.write_text(json.dumps({"type": "pipeline", "jobs": steps}))
    done = slurm("job", "create", "-f", file, "--name", name, "--force-rerun", *words)
    assert done.returncode == 0, done.stderr


def step(command: str, nodes: int = 2, **keys: Any) -> dict[str, Any]:
    return {"command": command, "resources": {"instance_count": nodes}, **keys}


def test_steps_run_on_the_nodes_of_those_that_asked_for_the_same(
    slurm: Allranks, cluster: Cluster, home: Path
):
    first = "if [ $ALLRANKS_NODE_RANK = 0 ]; then hostname > ${{outputs.out}}/x; fi"
    then = "cp ${{inputs.from}}/x ${{outputs.out}}/x"
    steps = {"a": step(first), "b": step(then), "c": step(then, 1), "d": step(then)}
    pipeline(slurm, home, "chain", **steps)
    chain = ended(slurm, "chain", 120)
    assert chain["status"] == "Completed"
    assert [*chain["steps"]] == ["a", "b", "c", "d"]
    assert launches(slurm, "chain") == ["chain_nodes_1"]
    nodes = hosts(slurm, "chain_nodes_1")
    assert [hosts(slurm, f"chain_{name}") for name in "abd"] == [nodes] * 3
    assert "nodes of chain" not in slurm("job", "events", "chain_c").stdout
    last = Path(show(slurm, "chain_d")["folder"], "named-outputs/out/x")
    assert last.read_text().strip() == nodes[0]
    until(lambda: not cluster.slurm("squeue", "-h"))
    assert show(slurm, "chain_nodes_1")["status"] == "Canceled"


def test_a_pipeline_can_turn_it_off(slurm: Allranks, home: Path):
    steps = {"a": step("true"), "b": step("true")}
    pipeline(slurm, home, "apart", "--set", "reuse_nodes=false", **steps)
    assert ended(slurm, "apart", 120)["status"] == "Completed"
    assert not launches(slurm, "apart")


def test_a_step_whose_launch_dies_takes_no_other_one_along(
    slurm: Allranks, cluster: Cluster, home: Path
):
    waits = '[ "$ALLRANKS_ATTEMPT" != 1 ] || { echo on; sleep 600; }'
    steps = {
        "a": step("true"),
        "b": step(waits, retry={"max_attempts": 2}),
        "c": step("false"),
    }
    pipeline(slurm, home, "torn", **steps)
    until(lambda: slurm("job", "logs", "torn_b").stdout.count("on") == 2, 60)
    for process in agents_of(home, "torn_nodes_1"):
        os.kill(process.pid, signal.SIGKILL)
    torn = ended(slurm, "torn", 120)
    assert torn["status"] == "Failed"
    found = {name: show(slurm, f"torn_{name}") for name in "abc"}
    assert {name: (job["status"], job["attempts"]) for name, job in found.items()} == {
        "a": ("Completed", 1),
        "b": ("Completed", 2),
        "c": ("Failed", 1),
    }
    assert launches(slurm, "torn") == ["torn_nodes_1", "torn_nodes_2"]
    until(lambda: not cluster.slurm("squeue", "-h"))


def test_nodes_wait_only_so_long_for_the_next_step_and_a_killed_server_keeps_them(
    slurm: Allranks, cluster: Cluster, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ALLRANKS_IDLE", "2")
    slurm("server", "stop")
    go = {name: home / f"go-{name}" for name in "bc"}
    waits = "echo on; until [ -e {} ]; do sleep 0.1; done"
    steps = {
        "a": step("true"),
        "b": step(waits.format(shlex.quote(str(go["b"])))),
        "c": step(waits.format(shlex.quote(str(go["c"]))), 1),
        "d": step("echo on; sleep 600"),
        "e": step("true"),
    }
    pipeline(slurm, home, "idle", **steps)
    until(lambda: "on" in slurm("job", "logs", "idle_b").stdout, 60)
    kill_server(home)
    go["b"].touch()
    until(lambda: "on" in slurm("job", "logs", "idle_c").stdout, 60)
    assert show(slurm, "idle_b")["attempts"] == 1
    # Two steps follow that could use them.
    until(lambda: show(slurm, "idle_nodes_1")["status"] == "Canceled", 30)
    go["c"].touch()
    until(lambda: "on" in slurm("job", "logs", "idle_d").stdout, 60)
    assert launches(slurm, "idle") == ["idle_nodes_1", "idle_nodes_2"]
    assert slurm("job", "cancel", "idle").returncode == 0
    assert ended(slurm, "idle")["status"] == "Canceled"
    until(lambda: not cluster.slurm("squeue", "-h"))
