"""Unpacking a thousand shards of a data set, beside the system's own tar started for each."""

from __future__ import annotations

import argparse
import io
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from statistics import median

from allranks.agent.archives import unpack
from bench.report import Bar, Result, spread_rows, table
from bench.rounds import Contender, alternate
from bench.stats import interval, paired

OURS, TAR = "allranks", "xargs -P2 -n1 tar xf"
FILES, SMALLEST, LARGEST = 20, 10_000, 100_000
_SEED = 11


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=int, default=1000, metavar="N", help="tars (1000)")
    parser.add_argument("--unpackings", type=int, default=5, metavar="N", help="rounds (5)")


def run(given: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="allranks-bench-") as made:
        place = Path(made)
        size = _fill(place / "shards", given.shards)
        folders = {OURS: place / "ours", TAR: place / "tar"}
        found = [
            Contender(name=name, once=once, before=lambda: _clear(*folders.values()))
            for name, once in (
                (OURS, lambda: _ours(place / "shards", folders[OURS])),
                (TAR, lambda: _tar(place / "shards", folders[TAR])),
            )
        ]
        samples, orders = alternate(found, given.unpackings)
        wrong = _differ(place / "shards", folders)
    rates = paired(samples[TAR], samples[OURS])
    low, high = interval(rates)
    title = f"{given.shards} shards, {size / 1e6:.0f} MB, {given.unpackings} rounds, seconds"
    rows = [(*row, f"{size / 1e6 / median(samples[row[0]]):.0f}") for row in spread_rows(samples)]
    return Result(
        name="unpack",
        text=table((title, "median", "min", "max", "MB/s"), rows)
        + f"\nrate, round by round: {median(rates):.2f} × that of tar"
        f" (95 %: {low:.2f} to {high:.2f})",
        samples={"s": samples},
        data={
            "shards": given.shards,
            "megabytes": size / 1e6,
            "orders": orders,
            "bytes": size,
            "seed": _SEED,
        },
        bars=[Bar(what="rate of unpacking × that of tar", found=median(rates), least=0.8)],
        wrong=wrong,
    )


def _fill(folder: Path, shards: int) -> int:
    """Tars of files as large as small pictures; the bytes that they hold."""
    folder.mkdir()
    dice, noise, total = random.Random(_SEED), random.Random(_SEED).randbytes(1 << 20), 0
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:05}.tar", "w") as file:
            for number in range(FILES):
                size = dice.randint(SMALLEST, LARGEST)
                at = dice.randrange(len(noise) - size)
                entry = tarfile.TarInfo(f"{shard:05}/{number:02}.jpg")
                entry.size, entry.mtime = size, 1_700_000_000
                file.addfile(entry, io.BytesIO(noise[at : at + size]))
                total += size
    return total


def _clear(*folders: Path) -> None:
    """Nobody pays for what is still to be written of another's."""
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)
    os.sync()


def _ours(shards: Path, goal: Path) -> None:
    unpack.unpack([(each, goal) for each in shards.iterdir()], 1 << 40, lambda done, size: None, 2)


def _tar(shards: Path, goal: Path) -> None:
    goal.mkdir()
    subprocess.run(
        ["bash", "-c", 'ls "$0"/*.tar | xargs -P2 -n1 tar xf', shards], cwd=goal, check=True
    )


def _differ(shards: Path, folders: dict[str, Path]) -> list[str]:
    _clear(*folders.values())
    _ours(shards, folders[OURS])
    _tar(shards, folders[TAR])
    done = subprocess.run(
        ["diff", "-rq", folders[OURS], folders[TAR]], capture_output=True, text=True
    )
    return [] if done.returncode == 0 else [f"not the same: {done.stdout[:500]}"]
