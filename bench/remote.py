"""Data over a link of 1 Gbit/s and 20 ms, beside rsync's daemon over the same link: from a client
to its server, and from the server to a node that shares no disk with it. One large file, and many
small ones. Nothing is encrypted, as rsync's daemon does not. The link is emulated: bench/link.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from bench import procs, upload
from bench.home import Home
from bench.inputs import serving
from bench.link import link
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate
from bench.stats import paired

OURS, RSYNC = "allranks", "rsync to a daemon"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--remote-megabytes", type=int, default=1000, metavar="N", help="one file (1000)")
    add("--remote-files", type=int, default=10_000, metavar="N", help="of 10 kB each (10000)")
    add("--remote-rounds", type=int, default=5, metavar="N", help="rounds (5)")
    add("--remote-megabits", type=float, default=1000, metavar="N", help="a second (1000)")
    add("--remote-round-trip", type=float, default=20, metavar="MS", help="of the link (20)")


def run(given: argparse.Namespace) -> Result:
    over = partial(link, megabits=given.remote_megabits, round_trip_ms=given.remote_round_trip)
    samples: dict[str, list[float]] = {}
    bars = []
    with Home() as home, upload.daemon(home.root / "rsync") as module:
        home.allranks("server", "start")
        served = json.loads((home.folder / "server.json").read_text())["url"]
        upload.write(home.work / "one file", 1, given.remote_megabytes * 1_000_000)
        upload.write(home.work / "many files", given.remote_files, 10_000)
        with (
            over(_port(served)) as to_server,
            over(_port((module / "url").read_text())) as to_daemon,
        ):
            for folder in sorted(home.work.iterdir(), reverse=True):
                rsync = f"rsync://127.0.0.1:{to_daemon}/files"
                pushes = _push(home, to_server, folder, module / "files" / "push", rsync)
                hops = {"to the server": alternate(pushes, given.remote_rounds)[0]}
                # As nodes read it: on the disk of the server's home.
                source = home.root / f"{folder.name} served" / "data" / "set"
                for place in (source, module / "files" / folder.name):
                    shutil.copytree(folder, place)
                with (
                    serving(source.parents[1], "plain", 1, source) as (url, token, _),
                    over(_port(url)) as to_node,
                ):
                    node = json.dumps([f"http://127.0.0.1:{to_node}", token, ""])
                    pulls = _pull(home, node, f"{rsync}/{folder.name}/")
                    hops["to a node"] = alternate(pulls, given.remote_rounds)[0]
                for hop, timed in hops.items():
                    name = f"{folder.name} {hop}"
                    samples |= {f"{name}, {who}": values for who, values in timed.items()}
                    ratio = median(paired(timed[RSYNC], timed[OURS]))
                    bars.append(Bar(what=f"{name}, rsync's time / ours", found=ratio, least=0.9))
    what = (
        f"{given.remote_megabytes} MB, {given.remote_files} files of 10 kB, "
        f"{given.remote_megabits:g} Mbit/s, {given.remote_round_trip:g} ms, seconds"
    )
    text = spreads(what, samples, 2)
    return Result(name="remote", text=text, samples={"s": samples}, bars=bars, wrong=home.left)


def _port(url: str) -> int:
    return int(url.split("/")[2].rpartition(":")[2])


def _client(home: Home, port: int) -> Mapping[str, str]:
    """The variables of a client that is elsewhere."""
    return {
        **home.env,
        "ALLRANKS_SERVER": f"http://127.0.0.1:{port}",
        "ALLRANKS_TOKEN": (home.folder / "token").read_text(),
        "ALLRANKS_HOME": str(home.root / "client"),
    }


def _push(home: Home, port: int, folder: Path, target: Path, url: str) -> list[Contender]:
    number, client = count(1), _client(home, port)
    ours = home.argv("data", "upload", folder, "--allow-large-data", "--quiet")
    rsync = ["rsync", "-a", "--whole-file", f"{folder}/", f"{url}/{target.name}/"]
    return [
        Contender(
            name=OURS,
            once=partial(procs.run, ours, cwd=home.work, env=client),
            before=lambda: upload.renew(home, folder, next(number)),
        ),
        Contender(
            name=RSYNC,
            once=partial(procs.run, rsync, cwd=home.work, env=home.env),
            before=partial(shutil.rmtree, target, ignore_errors=True),
        ),
    ]


def _pull(home: Home, node: str, url: str) -> list[Contender]:
    place = home.root / "node"
    ours = [sys.executable, "-m", "bench.inputs", node, "0", str(place)]
    rsync = ["rsync", "-a", "--whole-file", url, f"{place}/"]
    here, gone = Path(__file__).parents[1], partial(shutil.rmtree, place, ignore_errors=True)
    return [
        Contender(name=OURS, once=partial(procs.run, ours, cwd=here, env=home.env), before=gone),
        Contender(name=RSYNC, once=partial(procs.run, rsync, cwd=here, env=home.env), before=gone),
    ]
