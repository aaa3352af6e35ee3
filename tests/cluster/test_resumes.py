"""Ordinary training whose rank 0 saves a checkpoint in the working folder or ./outputs, ended again
and again in ways that a seed draws: all ranks of each attempt begin at one epoch, and never before
an earlier one.

``pytest tests/cluster/test_resumes.py --rounds 50`` plays many rounds, ``--first SEED --rounds 1``
that of a seed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from allranks.engines.local.end_gang import marked
from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import ended, number, ready, show
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(3600)]

TRAIN = """\
import json, os, sys, time
os.chdir(sys.argv[2])
rank, in_place = os.environ["RANK"], "in place" in sys.argv
epoch = json.load(open("ckpt.json"))["epoch"] if os.path.exists("ckpt.json") else 0
print(f"rank {rank} starts at epoch {epoch}", flush=True)
open(f"log-{rank}", "a").write(f"{epoch}\\n")
while True:
    time.sleep(0.2)
    epoch += 1
    if rank == "0":
        with open("ckpt.json" if in_place else "beside", "w") as file:
            json.dump({"epoch": epoch}, file)
        if not in_place:
            os.replace("beside", "ckpt.json")
        print("saved", flush=True)
"""
# The same with PyTorch, whose ranks compare their weights, too.
TORCH = """\
import os, sys, time, torch, torch.distributed as dist
os.chdir(sys.argv[2])
dist.init_process_group("gloo")
rank, model, epoch = dist.get_rank(), torch.nn.Linear(4, 1), 0
if os.path.exists("ckpt.pt"):
    state = torch.load("ckpt.pt")
    model.load_state_dict(state["model"])
    epoch = state["epoch"]
print(f"rank {rank} starts at epoch {epoch}", flush=True)
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
while True:
    optimizer.zero_grad()
    ddp(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.2)
    epoch += 1
    if rank == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch}, "beside.pt")
        os.replace("beside.pt", "ckpt.pt")
        print("saved", flush=True)
    dist.barrier()
"""


class Round(NamedTuple):
    """``disk``: all nodes see the home, one does not (`mixed`), or none may (`none`)."""

    where: str
    disk: str
    nodes: int
    script: str
    in_code: bool
    folder: str
    ends: tuple[str, ...]


def drawn(seed: int, where: str) -> Round:
    dice = random.Random(f"{where} {seed}")
    ends = ["rank", "agent", "preempt", "restart"]
    if where == "slurm":
        ends += ["host", "requeue", "time limit", "all agents"]
    script = "torch" if seed % 8 == 7 else dice.choice(["in place", "renamed", "renamed"])
    return Round(
        where,
        ("shared", "mixed", "none")[seed % 3] if where == "slurm" else "shared",
        dice.randint(2, 3 if where == "slurm" else 4),
        script,
        script != "torch" and dice.random() < 0.5,
        # What a kill cuts short there is put back in the working folder only.
        "." if script == "in place" else random.Random(seed).choice([".", "outputs"]),
        tuple(dice.choice(ends) for _ in range(3)),
    )


@pytest.fixture(params=["local", "slurm"])
def where(
    request: pytest.FixtureRequest, allranks: Allranks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    allranks("server", "start", env={"ALLRANKS_LOOK": "0.3"})
    if request.param == "slurm":
        cluster: Cluster = request.getfixturevalue("cluster")
        ready(cluster)
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        make = ("compute", "create", "s", "--type", "slurm", "--partition", "main", "--default")
        until(lambda: allranks(*make).returncode == 0, 30)
    yield request.param
    if request.param == "slurm":
        cluster("heal", "ctl")
    allranks("server", "stop", "--all")


def test_all_ranks_begin_at_one_epoch(
    where: str,
    allranks: Allranks,
    home: Path,
    code: Path,
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
):
    cluster = request.getfixturevalue("cluster") if where == "slurm" else None
    kinds = Counter[str]()
    for seed in of_options(pytestconfig):
        drawn_round = drawn(seed, where)
        if drawn_round.script == "torch":
            pytest.importorskip("torch", reason="PyTorch is not installed")
        print(f"seed {seed}: {drawn_round}", flush=True)
        play(seed, drawn_round, allranks, home, code, cluster)
        kinds.update(f"{where}, {drawn_round.disk}: {end}" for end in drawn_round.ends)
        kinds.update([", ".join([where, *map(str, drawn_round[1:4]), drawn_round.folder])])
    for kind, count in sorted(kinds.items()):
        print(f"{count:4} {kind}")


def of_options(config: pytest.Config) -> range:
    """The seeds to play; few in the check, because each takes half a minute."""
    first, rounds = config.getoption("first"), config.getoption("rounds")
    return range(first, first + (2 if rounds == 12 else rounds))


def play(
    seed: int,
    what: Round,
    allranks: Allranks,
    home: Path,
    code: Path,
    cluster: Cluster | None,
    more: Mapping[str, Callable[[str, random.Random], None]] = {},
) -> None:
    """``more``: further ways to end an attempt."""
    for name in ("ckpt.json", "outputs/ckpt.json", "train.py"):
        (code / name).unlink(missing_ok=True)
    (code / "train.py").write_text(TORCH if what.script == "torch" else TRAIN)
    if what.in_code:
        (code / what.folder).mkdir(exist_ok=True)
        (code / what.folder / "ckpt.json").write_text('{"epoch": 4}')
    options = ["--set", "retry.max_attempts=9", "--set", "limits.grace=2"]
    if what.disk == "none" and cluster is not None:
        options += ["--set", "resources.properties.slurm.shared_home=no"]
    if what.where == "slurm":
        options += ["--set", "resources.properties.slurm.requeue=true"]
    if what.disk == "mixed":
        assert cluster is not None
        cluster("exec", "n2", "mount", "-t", "tmpfs", "none", home)
    name = f"j{seed}"
    if what.where == "pods":
        options += ["-c", "there"]
    words = ("--detach", "-n", what.nodes, "-d", "pytorch", *options)
    python = "python3" if what.where == "pods" else "python"
    try:
        command = (python, "train.py", what.script, what.folder)
        done = allranks("run", "--name", name, *words, "--", *command)
        assert done.returncode == 0, done.stderr
        epochs = [begun(allranks, name, 0)]
        dice = random.Random(seed)
        for end in what.ends:
            before = show(allranks, name)["attempts"]
            until(lambda: "saved" in allranks("job", "logs", name, "--attempt", before).stdout)  # noqa: B023
            time.sleep(dice.uniform(1.0, 4.0))
            if end in more:
                more[end](name, dice)
                followed = name
            else:
                followed = misfortune(end, name, allranks, home, cluster, dice)
            before = before if followed == name else 0
            name = followed
            epochs.append(begun(allranks, name, before))
            print(f"  {end}: {name} begins at {epochs[-1]}", flush=True)
            assert epochs[-1] >= epochs[-2], f"seed {seed}: began at {epochs}"
        assert epochs[-1] > epochs[0], f"seed {seed}: began at {epochs}"
    finally:
        if what.disk == "mixed" and cluster is not None:
            allranks("job", "cancel", name)
            ended(allranks, name, seconds=120)
            cluster("exec", "n2", "umount", "-l", home, check=False)  # a dead host lost it
    allranks("job", "cancel", name)
    ended(allranks, name, seconds=120)
    if cluster is not None:
        ready(cluster)


def begun(allranks: Allranks, name: str, after: int) -> int:
    """The one epoch at which all ranks of the newest attempt begin, once all have said so; that
    attempt comes later than ``after``."""
    starts = dict[str, int]()

    def all_began() -> bool:
        job = show(allranks, name)
        assert job["status"] not in ("Failed", "Canceled", "Completed"), job["error"]
        if (attempt := job["attempts"]) <= after:
            return False
        text = allranks("job", "logs", name, "--attempt", attempt).stdout
        starts.clear()
        starts.update({r: int(n) for r, n in re.findall(r"rank (\d+) starts at epoch (\d+)", text)})
        return len(starts) == job["processes"]

    until(all_began, 90)
    assert len({*starts.values()}) == 1, f"{name}: {starts}\n{notes(allranks, name)}"
    return starts["0"]


def notes(allranks: Allranks, name: str) -> str:
    events = json.loads(allranks("job", "events", name, "--json").stdout)
    return "\n".join(f"{e['attempt']} {e['node']} {e['data'].get('message')}" for e in events)


def misfortune(
    end: str,
    name: str,
    allranks: Allranks,
    home: Path,
    cluster: Cluster | None,
    dice: random.Random,
) -> str:
    """End the job's attempt; the name of the job that goes on."""
    if end == "restart":
        allranks("job", "cancel", name)
        ended(allranks, name, seconds=120)
        done = allranks("job", "restart", name, "--json")
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["name"])
    if end == "preempt":
        assert allranks("job", "preempt", name).returncode == 0
    elif end == "requeue" and cluster is not None:
        cluster.slurm("scontrol", "requeue", number(cluster))
    elif end == "host" and cluster is not None:
        nodes = show(allranks, name)["node_states"]
        host = dice.choice(nodes)["host"]
        cluster("kill-host", host)
        until(lambda: show(allranks, name)["attempts"] > 1 or True)
        time.sleep(3)
        cluster("heal", host)
    else:
        every = processes(name) if end == "rank" else agents(name, home)
        kind = signal.SIGXCPU if end == "time limit" else signal.SIGKILL
        for process in [dice.choice(every)] if end in ("rank", "agent") else every:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                os.kill(process.pid, kind)
    return name


def processes(name: str) -> list[psutil.Process]:
    """The job's ranks, wherever they run."""
    found = list[psutil.Process]()

    def look() -> bool:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                is_of_job = process.environ().get("ALLRANKS_JOB") == name
                if is_of_job and "train.py" in process.cmdline():
                    found.append(process)
        return bool(found)

    until(look, 5)
    return found


def agents(name: str, home: Path) -> list[psutil.Process]:
    """The agents of the job, and their keepers."""
    gang = processes(name)[0].environ()["ALLRANKS_GANG"]
    found = list[psutil.Process]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            is_agent = any("allranks.agent" in word for word in words)
            of_gang = process.environ().get("ALLRANKS_GANG") == gang
            if is_agent and (of_gang or any(gang in word for word in words)):
                found.append(process)
    if not found:  # forked by the server of this machine
        key = gang.split(".", 1)[1]
        pids = marked(gang, home / "engines" / "local" / key)
        found = [psutil.Process(pid) for pid in pids]
        found = [each for each in found if any("allranks.agent" in w for w in each.cmdline())]
    assert found
    return found
