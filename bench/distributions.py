"""Each distribution beside its framework's own launcher: a trivial script on two ranks, end to end.

Both sides run the same Python of the same environment; the script imports nothing, so that what is
measured is the start of ranks and their end, not the framework.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Result, nothing, table
from bench.rounds import Contender, alternate
from bench.stats import paired

RANKS = "2"
SCRIPT = "trivial.py"
# Which launcher an environment has, and the type of job that stands beside it.
LAUNCHERS = {
    "pytorch": ("torchrun", ["torchrun", "--nproc-per-node", RANKS, SCRIPT]),
    "mpi": ("mpirun", ["mpirun", "-np", RANKS, "python", SCRIPT]),
    "deepspeed": ("deepspeed", ["deepspeed", "--num_accelerators", RANKS, SCRIPT]),
    "horovod": ("horovodrun", ["horovodrun", "--gloo", "-np", RANKS, "python", SCRIPT]),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--venv",
        action="append",
        default=[],
        metavar="TYPE=FOLDER",
        help=f"an environment with the launcher of a distribution ({', '.join(LAUNCHERS)}); "
        "those of the peers are used by themselves",
    )
    parser.add_argument("--starts", type=int, default=7, metavar="N", help="rounds (7)")


def run(given: argparse.Namespace) -> Result:
    venvs = [(kind, Path(folder)) for kind, _, folder in (v.partition("=") for v in given.venv)]
    for kind, peer in (("pytorch", "torch"), ("mpi", "mpi")):
        if kind not in dict(venvs) and (python := peers.program(peer, "python")):
            venvs.append((kind, Path(python).parents[1]))
    if not venvs:
        return nothing("distributions", f"all of it (--venv, or {peers.hint('torch')} mpi)")
    unknown = [kind for kind, _ in venvs if kind not in LAUNCHERS]
    if unknown:
        raise RuntimeError(f"--venv {unknown[0]}=…: the types are {', '.join(LAUNCHERS)}")
    with Home() as home:
        code = home.work / "code"
        code.mkdir()
        (code / SCRIPT).write_text("pass\n")
        pairs = {
            f"{kind} ({folder.name})": list(_pair(home, kind, folder)) for kind, folder in venvs
        }
        samples, orders = alternate(
            [each for pair in pairs.values() for each in pair], given.starts
        )
    rows = {
        name: _row(samples[ours.name], samples[own.name]) for name, (ours, own) in pairs.items()
    }
    return Result(
        name="distributions",
        text=_table(rows, given.starts),
        samples={"s": samples},
        data={"rounds": given.starts, "orders": orders, "summary": rows},
        wrong=home.left,
        left_out=[f"{kind} (no --venv {kind}=…)" for kind in LAUNCHERS if kind not in dict(venvs)],
    )


def _pair(home: Home, kind: str, folder: Path) -> Iterator[Contender]:
    """Ours with a server that runs already, and the framework's own launcher."""
    program, words = LAUNCHERS[kind]
    path = f"{folder / 'bin'}:{home.env['PATH']}"
    more = {"PATH": path, "VIRTUAL_ENV": str(folder), "DS_ACCELERATOR": "cpu"}
    more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    code, env = home.work / "code", {**home.env, **more}
    argv = home.argv("run", "-p", RANKS, "-d", kind, "--", "python", SCRIPT)
    yield Contender(
        name=f"allranks run -d {kind} ({folder.name})",
        once=partial(procs.run, argv, cwd=code, env=env),
        before=lambda: home.allranks("server", "start"),
    )
    own = [str(folder / "bin" / words[0]), *words[1:]]
    yield Contender(
        name=f"{program} ({folder.name})", once=partial(procs.run, own, cwd=code, env=env)
    )


def _row(ours: list[float], own: list[float]) -> dict[str, float]:
    return {
        "ours": median(ours),
        "own": median(own),
        "ratio": median(paired(ours, own)),
    }


def _table(rows: dict[str, dict[str, float]], rounds: int) -> str:
    head = (f"2 trivial ranks, {rounds} rounds, seconds", "allranks", "own launcher", "ratio")
    return table(
        head,
        [
            (name, *(f"{row[key]:.3f}" for key in ("ours", "own")), f"{row['ratio']:.2f}")
            for name, row in rows.items()
        ],
    )
