"""Checkpoints on their way to the server and back, beside `data upload` and `data download` of the
same files: a few large ones, and many small ones."""

from __future__ import annotations

import argparse
import re
import shutil
from datetime import datetime
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate
from bench.upload import renew, write

SAVED, UPLOAD = "state saved", "data upload"
RESTORED, DOWNLOAD = "state restored", "data download"
# Its files are links of others, so that none is sent before the rank ends.
SCRIPT = """
import os, sys
state = os.environ["ALLRANKS_STATE_DIR"]
if not os.listdir(state):
    for name in os.listdir(sys.argv[1]):
        os.link(os.path.join(sys.argv[1], name), os.path.join(state, name))
"""
_SMALL = 10_000


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--state-megabytes", type=int, default=2000, metavar="N", help="of 8 files (2000)")
    add("--state-files", type=int, default=10_000, metavar="N", help="of 10 kB each (10000)")
    add("--state-rounds", type=int, default=5, metavar="N", help="rounds (5)")


def run(given: argparse.Namespace) -> Result:
    samples: dict[str, list[float]] = {}
    with Home() as home:
        (home.work / "code").mkdir()
        (home.work / "code" / "save.py").write_text(SCRIPT)
        home.allranks("server", "start")
        large, small = home.work / "large", home.work / "small"
        write(large, 8, given.state_megabytes * 1_000_000 // 8)
        write(small, given.state_files, _SMALL)
        for folder, name in ((large, "8 large files"), (small, "many files")):
            timed, _ = alternate(_contenders(home, folder), given.state_rounds)
            samples |= {f"{name}, {what}": values for what, values in timed.items()}
    bars = [
        Bar(
            what=f"{name}, {ours}'s time / {peer}'s",
            found=_ratio(samples, name, ours, peer),
            most=1.0,
        )
        for name in ("8 large files", "many files")
        for ours, peer in ((SAVED, UPLOAD), (RESTORED, DOWNLOAD))
    ]
    text = f"{given.state_megabytes} MB in 8 files, {given.state_files} files of 10 kB, seconds"
    return Result(name="state", text=spreads(text, samples, 2), samples={"s": samples}, bars=bars)


def _contenders(home: Home, folder: Path) -> list[Contender]:
    """Each moves content that is not there yet."""
    number = count(1)
    target = home.work / "downloaded"

    def fresh() -> None:
        shutil.rmtree(target, ignore_errors=True)
        for name in home.told("job", "list", "--json"):
            home.allranks("job", "delete", name["name"], "--yes")
        renew(home, folder, next(number))

    def save(*more: str) -> str:
        code = home.work / "code"
        words = ("run", "--quiet", *more, "--", "python", "save.py", str(folder))
        home.allranks(*words, cwd=code)
        return str(home.told("job", "list", "--json")[0]["name"])

    def saved() -> float:
        events = _events(home, save())
        (ended,) = (e["data"]["ended_at"] for e in events if e["kind"] == "rank_ended")
        (finished,) = (e["at"] for e in events if e["kind"] == "finished")
        return datetime.fromisoformat(finished).timestamp() - float(ended)

    def restored() -> float:
        home.allranks("job", "restart", first[0], "--resume", "--quiet")
        name = home.told("job", "list", "--json")[0]["name"]
        home.allranks("job", "wait", name)
        (took,) = re.findall(
            r"fetched the state folder: .* in ([\d.]+) s", str(_events(home, name))
        )
        return float(took)

    first: list[str] = []

    def before_restored() -> None:
        fresh()
        first[:] = [save()]

    def before_download() -> None:
        fresh()
        home.allranks("data", "upload", str(folder), "--name", "d", "--allow-large-data", "--quiet")

    return [
        Contender(name=SAVED, once=saved, before=fresh),
        Contender(
            name=UPLOAD,
            once=lambda: str(
                home.allranks("data", "upload", str(folder), "--allow-large-data", "--quiet")
            ),
            before=fresh,
        ),
        Contender(name=RESTORED, once=restored, before=before_restored),
        Contender(
            name=DOWNLOAD,
            once=lambda: str(home.allranks("data", "download", "d", "-p", str(target), "--quiet")),
            before=before_download,
        ),
    ]


def _events(home: Home, job: str) -> list[Any]:
    told = home.told("job", "events", job, "--json")
    return list(told if isinstance(told, list) else told["events"])


def _ratio(samples: dict[str, list[float]], name: str, ours: str, peer: str) -> float:
    return median(samples[f"{name}, {ours}"]) / median(samples[f"{name}, {peer}"])
