"""Data of this machine on its way to a server, beside rsync's daemon: one large file, many small
ones, and ten files that changed."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from allranks import folder_trees
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate

OURS, RSYNC = "allranks data upload", "rsync to a daemon"
_SMALL = 10_000


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--upload-megabytes", type=int, default=1000, metavar="N", help="one file (1000)")
    add("--upload-files", type=int, default=10_000, metavar="N", help="of 10 kB each (10000)")
    add("--upload-rounds", type=int, default=5, metavar="N", help="rounds (5)")


def run(given: argparse.Namespace) -> Result:
    with Home() as home, _daemon(home.root / "rsync") as module:
        home.allranks("server", "start")
        large, small = home.work / "large", home.work / "small"
        _write(large, 1, given.upload_megabytes * 1_000_000)
        _write(small, given.upload_files, _SMALL)
        samples: dict[str, list[float]] = {}
        for folder, name in ((large, "one file"), (small, "many files")):
            timed, _ = alternate(_contenders(home, module, folder), given.upload_rounds)
            samples |= {f"{name}, {who}": values for who, values in timed.items()}
        samples["ten changed files"] = [
            _again(home, small, number) for number in range(given.upload_rounds)
        ]
    bars = [
        Bar(what=f"{name}, rsync's time / ours", found=_ratio(samples, name), least=0.5)
        for name in ("one file", "many files")
    ]
    changed = median(samples["ten changed files"])
    bars.append(Bar(what="ten changed files, seconds", found=changed, most=1.0))
    text = f"{given.upload_megabytes} MB, {given.upload_files} files of 10 kB, seconds"
    return Result(name="upload", text=spreads(text, samples, 2), samples={"s": samples}, bars=bars)


def _contenders(home: Home, module: Path, folder: Path) -> list[Contender]:
    """Each sends content that its server has not got."""
    target = f"{(module / 'url').read_text()}/{folder.name}/"
    number = count(1)
    upload = ("data", "upload", str(folder), "--allow-large-data", "--quiet")
    rsync = ["rsync", "-a", "--whole-file", f"{folder}/", target]
    return [
        Contender(
            name=OURS,
            once=lambda: str(home.allranks(*upload)),
            before=lambda: _renew(home, folder, next(number)),
        ),
        Contender(
            name=RSYNC,
            once=lambda: str(procs.run(rsync, cwd=home.work, env=home.env)),
            before=partial(shutil.rmtree, module / "files" / folder.name, ignore_errors=True),
        ),
    ]


def _again(home: Home, folder: Path, number: int) -> float:
    for path in sorted(folder.iterdir())[:10]:
        _stamp(path, -1 - number)
    began = time.monotonic()
    home.allranks("data", "upload", str(folder), "--quiet")
    return time.monotonic() - began


def _ratio(samples: dict[str, list[float]], name: str) -> float:
    return median(samples[f"{name}, {RSYNC}"]) / median(samples[f"{name}, {OURS}"])


def _write(folder: Path, files: int, size: int) -> None:
    folder.mkdir()
    for number in range(files):
        with (folder / f"{number:06}").open("wb") as file:
            for at in range(0, size, 1 << 24):
                file.write(os.urandom(min(1 << 24, size - at)))


def _renew(home: Home, folder: Path, number: int) -> None:
    """Change the content, and remove what was uploaded, as it is removed for rsync: what waits to
    be written to the disk would slow the next round."""
    for stored in (home.folder / "blobs", home.folder / "data" / "uploads"):
        for path in stored.glob("*"):
            folder_trees.remove(path)
    _change(folder, number)


def _change(folder: Path, number: int) -> None:
    for path in folder.iterdir():
        _stamp(path, number)


def _stamp(path: Path, number: int) -> None:
    with path.open("r+b") as file:
        file.write(number.to_bytes(8, "big", signed=True))


@contextmanager
def _daemon(root: Path) -> Iterator[Path]:
    """A daemon of rsync with a module for the folder ``files``; its address is in ``url``."""
    (root / "files").mkdir(parents=True)
    port, config = procs.free_port(), root / "rsyncd.conf"
    config.write_text(
        f"use chroot = no\n[files]\npath = {root / 'files'}\nread only = no\nuid = {os.getuid()}\n"
        f"gid = {os.getgid()}\n"
    )
    (root / "url").write_text(f"rsync://127.0.0.1:{port}/files")
    argv = ["rsync", "--daemon", "--no-detach", f"--config={config}", f"--port={port}"]
    daemon = subprocess.Popen([*argv, "--address=127.0.0.1"], stdin=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield root
    finally:
        daemon.kill()
        daemon.wait()
