"""What code costs that did not change: a folder of many files, beside an empty one."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

from allranks import settings
from allranks.snapshot.git import GitQuery
from allranks.snapshot.take import take_snapshot
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate

EMPTY, MANY, GIT = "an empty folder", "many files", "many files, in git"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=5000, metavar="N", help="files (5000)")
    parser.add_argument("--submits", type=int, default=9, metavar="N", help="rounds (9)")


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        folders = {name: home.work / f"code-{i}" for i, name in enumerate((EMPTY, MANY, GIT))}
        for name, folder in folders.items():
            _fill(folder, 0 if name == EMPTY else given.files)
        procs.run(["git", "init", "-q"], cwd=folders[GIT], env=home.env)
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        procs.run(["git", "add", "."], cwd=folders[GIT], env=home.env)
        procs.run(["git", *who, "commit", "-qm", "x"], cwd=folders[GIT], env=home.env)
        home.allranks("server", "start")
        found = [
            Contender(
                name=name, once=partial(home.allranks, "run", "--detach", "--", "true", cwd=f)
            )
            for name, f in folders.items()
        ]
        samples, orders = alternate(found, given.submits)
        before = _blobs(home)
        taken = {name: _taken(home, folder, given.submits) for name, folder in folders.items()}
        for folder in folders.values():
            home.allranks("run", "--", "true", cwd=folder)
        travelled = _blobs(home) - before
    found_s = {f"run --detach, {name}": values for name, values in samples.items()}
    found_s |= {f"the snapshot alone, {name}": values for name, values in taken.items()}
    worst = max(median(taken[MANY]), median(taken[GIT]))
    return Result(
        name="snapshot",
        text=spreads(f"{given.files} files, {given.submits} rounds, seconds", found_s, 3),
        samples={"s": found_s},
        data={"files": given.files, "orders": orders, "travelled": travelled},
        bars=[
            Bar(what="a snapshot of unchanged code, seconds", found=worst, most=0.3),
            Bar(what="blobs that travelled", found=travelled, most=0),
        ],
        wrong=home.left,
    )


def _fill(folder: Path, files: int) -> None:
    folder.mkdir()
    (folder / ".gitignore").write_text("*.pyc\n__pycache__/\nbuild/\n*.egg-info\n/data\n*.log\n")
    for i in range(files):
        path = folder / f"pkg{i // 50}" / f"mod{i % 50}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"x = {i}\n" * 40)
    # As old as code is that did not change lately.
    subprocess.run(["find", folder, "-exec", "touch", "-d", "2024-01-01", "{}", "+"], check=True)


def take() -> None:
    """Print the seconds that a snapshot of the working folder takes."""
    began = time.perf_counter()
    query = GitQuery(Path.cwd())
    take_snapshot(Path.cwd(), cache_file=settings.home().snapshots)
    query.result()
    print(time.perf_counter() - began)


def _taken(home: Home, folder: Path, rounds: int) -> list[float]:
    """Seconds for the snapshot by itself, each in a process of its own."""
    argv = [sys.executable, "-c", "from bench.snapshot import take; take()"]
    env = {**home.env, "PYTHONPATH": str(Path(__file__).parents[1])}
    return [float(procs.run(argv, cwd=folder, env=env).stdout) for _ in range(rounds)]


def _blobs(home: Home) -> int:
    return sum(1 for path in (home.folder / "blobs").rglob("*") if path.is_file())
