"""A short DDP script on two ranks, cold and warm, beside bare Python.

Ten steps with gloo on the CPU. Bare Python has the same variables, OMP_NUM_THREADS included. All
must say the same: each rank prints its losses and the hash of its weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, nothing, spread_rows, table
from bench.rounds import Contender, alternate
from bench.stats import interval, paired

RANKS = 2
BARE, COLD = "bare Python, by hand", "allranks run -p 2 -- python ddp.py"
WARM = "allranks run -p 2 --warm torch -- python ddp.py"
SCRIPT = """\
import gc, hashlib, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
wanted, model = torch.randn(20, 1), DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    inputs = torch.randn(32 * ranks, 20)[rank::ranks]
    loss = torch.nn.functional.mse_loss(model(inputs), inputs @ wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.9f}", flush=True)
weights = b"".join(each.numpy().tobytes() for each in net.state_dict().values())
told = f"rank {rank} weights {hashlib.sha256(weights).hexdigest()}"
told += f" threads {torch.get_num_threads()} {os.environ['OMP_NUM_THREADS']}"
print(told, flush=True)
# Without this torch aborts at Python's end now and then, because something still holds the group.
del model, optimizer, loss
dist.barrier()
dist.destroy_process_group()
gc.collect()
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--warm-rounds", type=int, default=7, metavar="N", help="rounds (7)")


def run(given: argparse.Namespace) -> Result:
    torch = peers.torch(given)
    if torch is None:
        return nothing("warm", f"all of it (no torch: --torch-python, or {peers.hint('torch')})")
    with Home() as home:
        code = home.work / "code"
        code.mkdir()
        (code / "ddp.py").write_text(SCRIPT)
        said: dict[str, list[list[str]]] = {name: [] for name in (BARE, COLD, WARM)}
        samples, orders = alternate(
            list(_contenders(home, code, torch.python, said)), given.warm_rounds
        )
    ratios = {name: paired(samples[name], samples[BARE]) for name in samples}
    rows = [(*row, f"{median(ratios[row[0]]):.3f}") for row in spread_rows(samples)]
    title = f"{RANKS} DDP ranks, 10 steps, {given.warm_rounds} rounds, seconds"
    low, high = interval(ratios[WARM])
    return Result(
        name="warm",
        text=table((title, "median", "min", "max", "× bare Python"), rows)
        + f"\nwarm, round by round: {median(ratios[WARM]):.3f} × bare Python"
        f" (95 %: {low:.3f} to {high:.3f})",
        samples={"s": samples},
        data={"versions": {"torch": torch.version}, "orders": orders, "ratios": ratios},
        bars=[
            Bar(what="warm / bare Python", found=median(ratios[WARM]), most=0.1),
            Bar(what="cold / bare Python", found=median(ratios[COLD]), most=1.1),
        ],
        wrong=[*_differ(said), *home.left],
    )


def _contenders(
    home: Home, code: Path, python: str, said: dict[str, list[list[str]]]
) -> Iterator[Contender]:
    """Each keeps in ``said`` what its ranks printed, sorted: how lines interleave is chance."""
    words = ["printenv", "OMP_NUM_THREADS"]
    threads = home.allranks("run", "-q", "-p", str(RANKS), "--rank", "0", "--", *words).stdout
    env = procs.environment(OMP_NUM_THREADS=threads.strip(), PYTHONUNBUFFERED="1")
    logs = home.work / "by hand"
    logs.mkdir()

    def bare() -> None:
        procs.by_hand([python, "ddp.py"], ranks=RANKS, cwd=code, env=env, logs=logs)
        texts = [(logs / f"{rank}.txt").read_text() for rank in range(RANKS)]
        said[BARE].append(sorted("".join(texts).splitlines()))

    def ours(name: str, *more: str) -> None:
        words = ["run", "-q", "-p", str(RANKS), *more, "--", python, "ddp.py"]
        said[name].append(sorted(home.allranks(*words, cwd=code).stdout.splitlines()))

    before = partial(home.allranks, "server", "start")
    yield Contender(name=BARE, once=bare)
    yield Contender(name=COLD, once=partial(ours, COLD), before=before)
    yield Contender(name=WARM, once=partial(ours, WARM, "--warm", "torch"), before=before)


def _differ(said: dict[str, list[list[str]]]) -> Iterator[str]:
    """Every run of everybody has to print what the first by hand did."""
    wanted = said[BARE][0]
    if len(wanted) != RANKS * 11:
        yield f"by hand the ranks printed {wanted}"
    for name, runs in said.items():
        for number, lines in enumerate(runs):
            if odd := _first_difference(lines, wanted):
                yield f"{name}, run {number}: {odd}"


def _first_difference(lines: Sequence[str], wanted: Sequence[str]) -> str:
    for one, other in zip(lines, wanted, strict=False):
        if one != other:
            return f"{one!r} instead of {other!r}"
    return "" if len(lines) == len(wanted) else f"{len(lines)} lines instead of {len(wanted)}"
