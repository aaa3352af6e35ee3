"""Three ranks that do nothing, end to end, under everything that can start them.

Timed is from typing the command to its exit, in rounds. The server runs before *warm*, and is
stopped before *cold*; neither counts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, spread_rows, table
from bench.rounds import SEED, Contender, alternate
from bench.stats import paired

RANKS = 3
WARM, COLD = "allranks run -p 3 -- true, warm server", "allranks run -p 3 -- true, cold server"
NODES = "allranks run -n 3 -- true, warm server"
SCRIPT = "allranks run -p 3 -- python trivial.py, warm"
BARE = "bare processes: 3 × true"
TORCHRUN, TORCHRUN_SCRIPT = "torchrun --no-python true", "torchrun trivial.py"
SUBMITIT, TORCHX, RAY = "submitit, local", "torchx, local_cwd", "Ray, 3 tasks"
SRUN, SBATCH = "srun -n 3 true", "sbatch --wait, srun in it"

_SUBMITIT = f"""
import sys, submitit
executor = submitit.AutoExecutor(folder=sys.argv[1], cluster="local")
executor.update_parameters(tasks_per_node={RANKS}, timeout_min=5)
executor.submit(submitit.helpers.CommandFunction([sys.argv[2]])).results()
"""
_RAY = f"""
import subprocess, sys, ray
ray.init(num_cpus={RANKS}, include_dashboard=False, configure_logging=False)
true = sys.argv[1]
run = ray.remote(lambda: subprocess.run([true], check=True) and None)
ray.get([run.remote() for _ in range({RANKS})])
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds (9)")


def run(given: argparse.Namespace) -> Result:
    torch, mpi = peers.torch(given), peers.mpirun(RANKS)
    with Home() as home:
        broken: dict[str, str] = {}
        others = [*_torchrun(home, torch), *_others(home, given.slurm)]
        found = [*_ours(home), *(each for each in others if _works(each, broken))]
        samples, orders = alternate(found, given.rounds)
    reference = next((name for name in (TORCHRUN, TORCHRUN_SCRIPT) if name in samples), None)
    ratios = {name: _ratio(samples, name, reference) for name in samples}
    order = sorted(samples, key=lambda name: median(samples[name]))
    rows = [
        (*row, f"{ratio:.3f}" if (ratio := ratios[row[0]]) is not None else "-")
        for row in spread_rows({name: samples[name] for name in order}, 3)
    ]
    title = f"{RANKS} trivial ranks, {given.rounds} rounds, seconds"
    return Result(
        name="launch",
        text=table((title, "median", "min", "max", "× torchrun"), rows),
        samples={"s": samples},
        data={
            "rounds": given.rounds,
            "seed": SEED,
            "versions": {"torch": torch and torch.version, "mpirun": mpi and mpi[1]},
            "reference": reference,
            "orders": orders,
            "ratios": ratios,
        },
        bars=list(_bars(samples)),
        wrong=home.left,
        left_out=[*_left_out({**samples, **broken}, torch), *map(": ".join, broken.items())],
    )


def _ours(home: Home) -> Iterator[Contender]:
    code, empty = home.work / "code", home.work / "empty"
    code.mkdir()
    empty.mkdir()
    (code / "trivial.py").write_text("pass\n")
    for name, cwd, words in (
        (WARM, empty, ("-p", "3", "--", "true")),
        (NODES, empty, ("-n", "3", "--", "true")),
        (SCRIPT, code, ("-p", "3", "--", sys.executable, "trivial.py")),
        (COLD, empty, ("-p", "3", "--", "true")),
    ):
        yield Contender(
            name=name,
            once=partial(home.allranks, "run", *words, cwd=cwd),
            before=partial(home.allranks, "server", "stop" if name == COLD else "start"),
        )


def _torchrun(home: Home, torch: peers.Torch | None) -> Iterator[Contender]:
    if torch is None:
        return
    # The script's ranks run on the same Python as torchrun itself; they do not import torch.
    script = str(home.work / "code" / "trivial.py")
    for name, words in ((TORCHRUN, ["--no-python", _true()]), (TORCHRUN_SCRIPT, [script])):
        argv = [*torch.torchrun, "--nproc-per-node", str(RANKS), *words]
        yield _command(home.work, name, argv)


def _others(home: Home, partition: str | None) -> Iterator[Contender]:
    """Everybody else who is there."""
    work, true = home.work, _true()
    env = procs.environment()
    yield Contender(name=BARE, once=lambda: procs.by_hand([true], ranks=RANKS, cwd=work, env=env))
    if mpi := peers.mpirun(RANKS):
        yield _command(work, f"mpirun -n {RANKS} true", [*mpi[0], true])
    if python := peers.program("submitit"):
        yield _command(work, SUBMITIT, [python, "-c", _SUBMITIT, str(work / "submitit"), true])
    if torchx := peers.program("torchx"):
        words = ["run", "--wait", "-s", "local_cwd", "utils.sh", "--num_replicas", str(RANKS)]
        yield _command(work, TORCHX, [torchx, *words, true])
    if python := peers.program("ray", "python"):
        yield _command(work, RAY, [python, "-c", _RAY, true])
    if partition and peers.there("slurm"):
        srun = ["srun", "-p", partition, "-n", str(RANKS), "true"]
        yield _command(work, SRUN, srun)
        wrap = ["--output=/dev/null", f"--wrap=srun -n {RANKS} true"]
        yield _command(work, SBATCH, ["sbatch", "--wait", "-p", partition, "-n", str(RANKS), *wrap])


def _command(work: Path, name: str, argv: Sequence[str]) -> Contender:
    return Contender(name=name, once=partial(procs.run, argv, cwd=work, env=procs.environment()))


def _works(peer: Contender, broken: dict[str, str]) -> bool:
    """Whether a peer runs here; if not, why is in ``broken``."""
    try:
        peer.once()
    except RuntimeError as error:
        broken[peer.name] = str(error).strip().splitlines()[-1]
    return peer.name not in broken


def _true() -> str:
    return shutil.which("true") or "true"


def _ratio(
    samples: Mapping[str, Sequence[float]], name: str, reference: str | None
) -> float | None:
    """Round by round, how many times the reference: the median."""
    if name not in samples or reference is None or reference not in samples:
        return None
    return median(paired(samples[name], samples[reference]))


def _bars(samples: Mapping[str, Sequence[float]]) -> Iterator[Bar]:
    for name, most in ((WARM, 0.12), (COLD, 0.5)):
        yield Bar(what=f"{name}, seconds", found=median(samples[name]), most=most)
    for name, beside, most in (
        (WARM, TORCHRUN, 0.06),
        (COLD, TORCHRUN, 1.0),
        *((WARM, each, 1.0) for each in (SUBMITIT, TORCHX, RAY, SRUN)),
    ):
        ratio = _ratio(samples, name, beside)
        if ratio is not None:
            yield Bar(what=f"{name} / {beside}", found=ratio, most=most)


def _left_out(samples: Mapping[str, object], torch: peers.Torch | None) -> Iterator[str]:
    if torch is None:
        yield f"torchrun (no torch here: --torch-python PATH, or {peers.hint('torch')})"
    for peer, name in (
        ("mpi", f"mpirun -n {RANKS} true"),
        ("submitit", SUBMITIT),
        ("torchx", TORCHX),
        ("ray", RAY),
        ("slurm", SRUN),
    ):
        if name not in samples:
            yield f"{name} ({peers.hint(peer)})"
