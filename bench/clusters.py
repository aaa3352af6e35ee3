"""From submit to the first line of a job of three nodes, on a cluster that is there, against the
cluster's own way to start one; and how often a cluster is asked while jobs wait in its queue."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

from bench import peers
from bench.home import Home
from bench.report import Bar, Result, nothing, spreads
from bench.rounds import Contender, alternate

NODES = 3
# What either may take longer than the cluster's own way, in seconds.
MORE = 1.0
# How long a job may take, in seconds.
_PATIENCE = 60.0

_RAY = """
import sys, time
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
ray.init()
group = placement_group([{"CPU": 1}] * NODES, strategy="STRICT_SPREAD")
class Node:
    def line(self, node):
        return f"line {node}"
actors = [
    ray.remote(Node).options(
        num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, node)
    ).remote()
    for node in range(NODES)
]
waiting = [actor.line.remote(node) for node, actor in enumerate(actors)]
print(ray.get(ray.wait(waiting)[0][0]), flush=True)
ray.get(waiting)
""".replace("NODES", str(NODES))

# Timed within, from the call on: its import of Ray is no part of it.
_SDK = """
import sys, time
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient(sys.argv[1])
began = time.perf_counter()
job = client.submit_job(entrypoint=sys.argv[2], entrypoint_num_cpus=0)
while "line" not in client.get_job_logs(job):
    time.sleep(0.01)
print(time.perf_counter() - began)
while client.get_job_status(job) not in ("SUCCEEDED", "FAILED", "STOPPED"):
    time.sleep(0.05)
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cluster-rounds", type=int, default=7, metavar="N", help="rounds (7)")
    add("--queued", type=int, default=0, metavar="N", help="also: with so many jobs on hold")
    add("--ray", metavar="ADDRESS", help="the dashboard of a Ray of three nodes")
    what = "a Python with that Ray, for its SDK (that of the peers)"
    add("--ray-python", metavar="PATH", help=what)
    add("--ray-token-file", metavar="FILE", help="its token")
    add("--kubernetes", metavar="KUBECONFIG", help="a Kubernetes of three nodes, with `kubectl`")
    add("--kubernetes-image", metavar="IMAGE", help="an image there with bash and Python 3.11")
    what = "also: where its pods find this machine's temporary folder (host)"
    add("--kubernetes-volume", metavar="VOLUME", help=what)


def run(given: argparse.Namespace) -> Result:
    if not (given.slurm or given.ray or given.kubernetes):
        hint = "everything: name a cluster with --slurm, --ray or --kubernetes"
        return nothing("clusters", hint)
    samples: dict[str, list[float]] = {}
    orders, bars, data = [], [], {}
    with Home() as home:
        home.allranks("server", "start")
        for name, found in _clusters(given, home).items():
            mine, order = alternate(found, given.cluster_rounds)
            orders += order
            samples |= mine
            ours, theirs = (median(mine[each.name]) for each in found[:2])
            bars.append(Bar(what=f"{name}, seconds more", found=ours - theirs, most=MORE))
        if given.slurm and given.queued:
            data["queued"] = found_asked = _questions(home, given.queued)
            per_tick = found_asked["questions_a_tick"]
            bars.append(
                Bar(what=f"questions a tick, {given.queued} jobs", found=per_tick, most=1.2)
            )
        home.allranks("server", "stop", "--all")
    return Result(
        name="clusters",
        text=spreads(f"submit → first line, {NODES} nodes, s", samples),
        samples={"s": samples},
        data={"rounds": given.cluster_rounds, "orders": orders, **data},
        bars=bars,
        wrong=home.left,
    )


def _clusters(given: argparse.Namespace, home: Home) -> Mapping[str, list[Contender]]:
    found = {}
    if given.slurm:
        home.allranks("compute", "create", "s", "--type", "slurm", "--partition", given.slurm)
        found["Slurm"] = [
            Contender(name="allranks run -c SLURM -n 3", once=partial(_ours, home, "s")),
            Contender(
                name="sbatch -N 3, srun in it", once=partial(_sbatch, home.work, given.slurm)
            ),
        ]
    if given.ray:
        token = ("--token-file", given.ray_token_file) if given.ray_token_file else ()
        home.allranks("compute", "create", "r", "--type", "ray", "--address", given.ray, *token)
        script = home.work / "three.py"
        script.write_text(_RAY)
        python = given.ray_python or peers.program("ray", "python") or sys.executable
        env = dict(home.env)
        if given.ray_token_file:
            env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": given.ray_token_file}
        sdk = partial(_sdk, env, python, given.ray)
        found["Ray"] = [
            Contender(name="allranks run -c RAY -n 3", once=partial(_ours, home, "r")),
            Contender(name="Ray's job SDK, 3 actors", once=partial(sdk, f"{python} {script}")),
            Contender(name="Ray's job SDK, a shell's echo", once=partial(sdk, "echo line")),
        ]
    if given.kubernetes:
        make = ("compute", "create", "k", "--type", "kubernetes", "--cpus", "0.5")
        where = ("--kubeconfig", given.kubernetes, "--image", given.kubernetes_image)
        home.allranks(*make, *where)
        job = partial(_kubectl, given.kubernetes, given.kubernetes_image)
        found["Kubernetes"] = [
            Contender(name="allranks run -c KUBERNETES -n 3", once=partial(_ours, home, "k")),
            Contender(name="kubectl create, logs -f, 3 pods", once=job),
        ]
        if given.kubernetes_volume:
            make = ("compute", "create", "v", *make[3:])
            home.allranks(*make, *where, "--home-volume", given.kubernetes_volume)
            ours = partial(_ours, home, "v")
            found["Kubernetes"].append(Contender(name="… with --home-volume", once=ours))
    return found


def _kubectl(config: str, image: str) -> float:
    """The same Job by hand: created, and the log of the first pod followed."""
    kubectl = ["kubectl", "--kubeconfig", config]
    name = f"bench-{time.time_ns()}"
    wants = {"resources": {"requests": {"cpu": "500m"}}, "command": ["bash", "-c", "echo line"]}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": image, **wants}]}
    spec = {"completions": NODES, "parallelism": NODES, "completionMode": "Indexed"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    text = json.dumps({**job, "spec": {**spec, "template": {"spec": pod}}})
    began = time.perf_counter()
    subprocess.run([*kubectl, "create", "-f", "-"], input=text, text=True, check=True, stdout=-3)
    line = ""
    # `logs` refuses while there is no pod, and while its container is being created.
    while "line" not in line:
        if time.perf_counter() - began > _PATIENCE:
            raise RuntimeError(f"no line of the job {name} within {_PATIENCE} s")
        follow = [*kubectl, "logs", "-f", f"job/{name}", "--pod-running-timeout=60s"]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=-3, text=True) as running:
            assert running.stdout is not None
            line = running.stdout.readline()
    seconds = time.perf_counter() - began
    wait = ["wait", "--for=condition=complete", f"job/{name}", "--timeout=60s"]
    subprocess.run([*kubectl, *wait], check=True, stdout=-3)
    subprocess.run([*kubectl, "delete", "job", name], check=True, stdout=-3)
    return seconds


def _ours(home: Home, compute: str) -> float:
    """The whole command: its own start, the submit, the first line on its output."""
    argv = home.argv("run", "-c", compute, "-n", str(NODES), "-q", "--", "echo", "line")
    began = time.perf_counter()
    with subprocess.Popen(
        argv, cwd=home.work, env=home.env, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        seconds = time.perf_counter() - began
        rest = running.stdout.read()
    if running.returncode or (line + rest).count("line") != NODES:
        raise RuntimeError(f"the job ended with {running.returncode}: {line + rest}")
    return seconds


def _sbatch(work: Path, partition: str) -> float:
    """The command, and the first line in the file that Slurm writes."""
    out = work / f"{time.time_ns()}.out"
    script = f"#!/bin/bash\nsrun -N {NODES} --ntasks-per-node=1 echo line\n"
    words = ["sbatch", "--parsable", "-p", partition, f"-N{NODES}", "--ntasks-per-node=1"]
    began = time.perf_counter()
    subprocess.run([*words, "-o", str(out)], input=script, text=True, check=True, stdout=-3)
    while not (out.exists() and "line" in out.read_text()):
        time.sleep(0.001)
    seconds = time.perf_counter() - began
    while out.read_text().count("line") < NODES or _squeue():
        time.sleep(0.05)
    return seconds


def _squeue() -> str:
    return subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout.strip()


def _sdk(env: Mapping[str, str], python: str, address: str, entrypoint: str) -> float:
    argv = [python, "-c", _SDK, address, entrypoint]
    done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _questions(home: Home, jobs: int) -> dict[str, float]:
    """Submit jobs that are held, then count what is asked of Slurm in twenty ticks."""
    log, bin_ = home.root / "asked", home.root / "bin"
    bin_.mkdir()
    real = subprocess.run(["which", "squeue"], capture_output=True, text=True).stdout.strip()
    spy = bin_ / "squeue"
    spy.write_text(f'#!/bin/bash\necho >>{log}\nexec {real} "$@"\n')
    spy.chmod(0o755)
    home.allranks("server", "stop")
    home.env["PATH"] = f"{bin_}:{os.environ['PATH']}"
    hold = "resources.properties.slurm.extra=--hold"
    began = time.perf_counter()
    for _ in range(jobs):
        home.allranks("run", "--detach", "-c", "s", "--set", hold, "--", "true")
    submitted = time.perf_counter() - began
    while len(json.loads(home.allranks(*_QUEUED, str(jobs)).stdout)) < jobs:
        time.sleep(0.5)
    before, ticks = _lines(log), 20
    time.sleep(ticks * 0.5)
    return {
        "jobs": jobs,
        "submits_per_second": jobs / submitted,
        "questions_a_tick": (_lines(log) - before) / ticks,
    }


_QUEUED = ("job", "list", "--status", "Queued", "--json", "--limit")


def _lines(log: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return len(log.read_text().splitlines())
    return 0
