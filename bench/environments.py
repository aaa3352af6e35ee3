"""What an environment costs: one that is there already, and one that is made, beside uv itself."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from uv import find_uv_bin

from bench import procs
from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate
from bench.stats import paired

PACKAGES = ("numpy", "pandas", "pyyaml")
CURRENT, CACHED = "allranks run -- true", "allranks run -e requirements.txt -- true, made before"
OURS, UVS = "allranks run -e requirements.txt -- true, to be made", "uv venv && uv pip install"
WARM, COLD = "wheels in uv's cache", "nothing in uv's cache"


def options(parser: argparse.ArgumentParser) -> None:
    many, few = "rounds with an environment that is there (15)", "rounds of making one (5)"
    parser.add_argument("--runs", type=int, default=15, metavar="N", help=many)
    parser.add_argument("--makings", type=int, default=5, metavar="N", help=few)


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        # Not a shim: what one takes to choose a Python is its own.
        home.env["PATH"] = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        (home.work / "empty").mkdir()
        file = home.work / "requirements.txt"
        file.write_text("".join(f"{each}\n" for each in PACKAGES))
        samples, orders = alternate(list(_runs(home, file)), given.runs)
        made, more = alternate([_current(home), *_makings(home, file)], given.makings)
    cost = median(a - b for a, b in zip(samples[CACHED], samples[CURRENT], strict=True))
    beside = made.pop(CURRENT)
    samples |= made
    bars = [Bar(what="an environment that is there, seconds more", found=cost, most=0.05)]
    for cache in (WARM, COLD):
        more_time = [a - b for a, b in zip(made[f"{OURS}, {cache}"], beside, strict=True)]
        ratio = median(paired(more_time, made[f"{UVS}, {cache}"]))
        what = f"what the making adds to a job / uv itself, {cache}"
        bars.append(Bar(what=what, found=ratio, most=1.1))
    return Result(
        name="environments",
        text=spreads(f"{given.runs} and {given.makings} rounds, seconds", samples, 3),
        samples={"s": samples},
        data={"packages": PACKAGES, "orders": [*orders, *more]},
        bars=bars,
        wrong=home.left,
    )


def _current(home: Home) -> Contender:
    """A trivial job on the Python in front."""
    once = partial(home.allranks, "run", "--", "true", cwd=home.work / "empty")
    return Contender(name=CURRENT, once=once, before=partial(home.allranks, "server", "start"))


def _runs(home: Home, file: Path) -> Sequence[Contender]:
    """The same trivial job on the Python in front, and in an environment that is there."""
    words = ("run", "-e", file, "--", "true")
    once = partial(home.allranks, *words, cwd=home.work / "empty")
    start = partial(home.allranks, "server", "start")
    return [_current(home), Contender(name=CACHED, once=once, before=start)]


def _makings(home: Home, file: Path) -> Sequence[Contender]:
    """The same packages, by us and by uv, each with a cache of its own."""
    found: list[Contender] = []
    for cache in (WARM, COLD):
        for name, own in ((OURS, True), (UVS, False)):
            kept, goal = home.work / f"cache-{len(found)}", home.work / f"venv-{len(found)}"
            env = {k: v for k, v in home.env.items() if not k.startswith(("PIP_", "UV_"))}
            # uv does not know pip's settings, and we would follow them: none for both.
            env |= {"UV_CACHE_DIR": str(kept), "PIP_CONFIG_FILE": "/dev/null"}
            gone = [goal, home.folder / "environments", *([kept] if cache == COLD else [])]
            once = partial(_ours, home, file, env) if own else partial(_uvs, goal, file, env)
            before = partial(_cleared, home, gone)
            found.append(Contender(name=f"{name}, {cache}", once=once, before=before))
    return found


def _cleared(home: Home, gone: Sequence[Path]) -> None:
    home.allranks("server", "start")
    for each in gone:
        shutil.rmtree(each, ignore_errors=True)


def _ours(home: Home, file: Path, env: Mapping[str, str]) -> None:
    argv = home.argv("run", "-e", file, "--", "true")
    procs.run(argv, cwd=home.work / "empty", env=env)


def _uvs(goal: Path, file: Path, env: Mapping[str, str]) -> None:
    uv = find_uv_bin()
    procs.run([uv, "venv", goal], cwd=goal.parent, env=env)
    words: list[str | Path] = [uv, "pip", "install", "--python", goal, "--requirements", file]
    procs.run(words, cwd=goal.parent, env=env)
