"""A trivial job of three ranks, end to end, under everything that can start one, in alternation."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, table
from bench.stats import paired, spread

RANKS = 3
WARM, COLD = "allranks run -p 3 -- true, warm server", "allranks run -p 3 -- true, cold server"
NODES = "allranks run -n 3 -- true, warm server"
SCRIPT = "allranks run -p 3 -- python trivial.py, warm"
BARE = "bare processes: 3 × true"
TORCHRUN, TORCHRUN_SCRIPT = "torchrun --no-python true", "torchrun trivial.py"
_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Contender:
    """``once`` is timed; ``before`` puts things in place for it and is not."""

    name: str
    once: Callable[[], object]
    before: Callable[[], object] = lambda: None


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds (9)")


def run(given: argparse.Namespace) -> Result:
    torch = None if given.no_torch else peers.torch(given.torch_python)
    mpi = peers.mpirun(RANKS)
    left_out = []
    if torch is None:
        left_out.append("torchrun (no torch here; --torch-python names a Python that has it)")
    if mpi is None:
        left_out.append("mpirun (not on PATH)")
    with Home() as home:
        (home.work / "code").mkdir()
        (home.work / "code" / "trivial.py").write_text("pass\n")
        found = contenders(home, torch, mpi[0] if mpi else None)
        samples, orders = alternate(found, given.rounds)
    reference = next((name for name in (TORCHRUN, TORCHRUN_SCRIPT) if name in samples), None)
    summary = summarise(samples, reference)
    return Result(
        name="launch",
        text=as_table(summary, given.rounds),
        data={
            "rounds": given.rounds,
            "seed": _SEED,
            "versions": {"torch": torch and torch.version, "mpirun": mpi and mpi[1]},
            "reference": reference,
            "orders": orders,
            "samples_s": samples,
            "summary": summary,
        },
        bars=bars(summary),
        wrong=home.left,
        left_out=left_out,
    )


def contenders(home: Home, torch: peers.Torch | None, mpi: Sequence[str] | None) -> list[Contender]:
    """Everybody who takes part: each starts three of the system's own ``true``, or of a script."""
    work, code, true = home.work, home.work / "code", shutil.which("true") or "true"
    env = procs.environment()

    def warm(name: str, *words: str) -> Contender:
        cwd = code if "trivial.py" in words else work / "empty"
        return Contender(
            name=name,
            once=lambda: home.allranks("run", *words, cwd=cwd),
            before=lambda: home.allranks("server", "start"),
        )

    (work / "empty").mkdir()
    found = [
        Contender(name=BARE, once=lambda: procs.by_hand([true], ranks=RANKS, cwd=work, env=env)),
        warm(WARM, "-p", "3", "--", "true"),
        warm(NODES, "-n", "3", "--", "true"),
        warm(SCRIPT, "-p", "3", "--", sys.executable, "trivial.py"),
        Contender(
            name=COLD,
            once=lambda: home.allranks("run", "-p", "3", "--", "true", cwd=work / "empty"),
            before=lambda: home.allranks("server", "stop"),
        ),
    ]
    if torch is not None:
        start = [*torch.torchrun, "--nproc-per-node", str(RANKS)]
        # The script's ranks run on the same Python as torchrun itself; they do not import torch.
        for name, words in (
            (TORCHRUN, ["--no-python", true]),
            (TORCHRUN_SCRIPT, [str(code / "trivial.py")]),
        ):
            argv = [*start, *words]
            found.append(Contender(name=name, once=partial(procs.run, argv, cwd=work, env=env)))
    if mpi is not None:
        argv = [*mpi, true]
        found.append(
            Contender(name="mpirun -n 3 true", once=partial(procs.run, argv, cwd=work, env=env))
        )
    return found


def alternate(
    found: Sequence[Contender], rounds: int
) -> tuple[dict[str, list[float]], list[list[str]]]:
    """Everybody once a round, in an order drawn anew for each; one round before that is not
    counted, for what is read from the disk, compiled or set up only once."""
    dice = random.Random(_SEED)
    samples: dict[str, list[float]] = {each.name: [] for each in found}
    orders = []
    for number in range(rounds + 1):
        order = dice.sample(found, len(found))
        for each in order:
            each.before()
            seconds = procs.timed(each.once)
            if number:
                samples[each.name].append(seconds)
        if number:
            orders.append([each.name for each in order])
    return samples, orders


Summary = dict[str, dict[str, float | None]]


def summarise(samples: Mapping[str, Sequence[float]], reference: str | None) -> Summary:
    """Median, extremes and, round by round, the ratio to the reference: its median."""
    return {
        name: {
            **spread(values),
            "ratio": median(paired(values, samples[reference])) if reference else None,
        }
        for name, values in samples.items()
    }


def bars(summary: Summary) -> list[Bar]:
    found = [Bar(what="warm, seconds (the goal)", found=summary[WARM]["median"] or 0.0, most=0.3)]
    for name, most in ((WARM, 0.35), (COLD, 1.0)):
        ratio = summary[name]["ratio"]
        if ratio is not None:
            found.append(Bar(what=f"{name} / torchrun", found=ratio, most=most))
    return found


def as_table(summary: Summary, rounds: int) -> str:
    rows = [
        (
            name,
            *(f"{row[key]:.3f}" for key in ("median", "min", "max")),
            f"{row['ratio']:.3f}" if row["ratio"] is not None else "-",
        )
        for name, row in sorted(summary.items(), key=lambda item: item[1]["median"] or 0.0)
    ]
    head = (f"3 trivial ranks, {rounds} rounds, seconds", "median", "min", "max", "× torchrun")
    return table(head, rows)
