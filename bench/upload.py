"""Data of this machine on its way to a server, beside rsync's daemon: one large file, many small
ones, and ten files that changed; and to an S3 server, beside the AWS CLI.

For S3 the variables of AWS have credentials, and the bucket `bucket` is there:
`moto_server -p 5000`, `curl -X PUT http://127.0.0.1:5000/bucket`, then
`python -m bench upload --upload-s3 http://127.0.0.1:5000 --upload-aws venv/bin/aws`.
"""

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

OURS, RSYNC, AWS = "allranks data upload", "rsync to a daemon", "aws s3 cp"
_SMALL = 10_000


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--upload-megabytes", type=int, default=1000, metavar="N", help="one file (1000)")
    add("--upload-files", type=int, default=10_000, metavar="N", help="of 10 kB each (10000)")
    add("--upload-rounds", type=int, default=5, metavar="N", help="rounds (5)")
    add("--upload-s3", metavar="URL", help="an S3 server, to upload there, too")
    add("--upload-aws", default="aws", metavar="PROGRAM", help="the AWS CLI (aws)")


def run(given: argparse.Namespace) -> Result:
    with Home() as home, daemon(home.root / "rsync") as module:
        home.allranks("server", "start")
        large, small = home.work / "large", home.work / "small"
        write(large, 1, given.upload_megabytes * 1_000_000)
        write(small, given.upload_files, _SMALL)
        samples: dict[str, list[float]] = {}
        for folder, name in ((large, "one file"), (small, "many files")):
            timed, _ = alternate(_contenders(home, module, folder), given.upload_rounds)
            samples |= {f"{name}, {who}": values for who, values in timed.items()}
        samples["ten changed files"] = [
            _again(home, small, number) for number in range(given.upload_rounds)
        ]
        bars = [
            Bar(what=f"{name}, rsync's time / ours", found=_ratio(samples, name, RSYNC), least=0.5)
            for name in ("one file", "many files")
        ]
        if given.upload_s3:
            where = ("--type", "s3", "--bucket", "bucket", "--endpoint", given.upload_s3)
            home.allranks("datastore", "create", "s3", *where)
            for folder, name in ((large, "one file to S3"), (small, "many files to S3")):
                contenders = _to_s3(home, folder, given.upload_s3, given.upload_aws)
                timed, _ = alternate(contenders, given.upload_rounds)
                samples |= {f"{name}, {who}": values for who, values in timed.items()}
                found = _ratio(samples, name, AWS)
                bars.append(Bar(what=f"{name}, the AWS CLI's time / ours", found=found, least=1.0))
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
            before=lambda: renew(home, folder, next(number)),
        ),
        Contender(
            name=RSYNC,
            once=lambda: str(procs.run(rsync, cwd=home.work, env=home.env)),
            before=partial(shutil.rmtree, module / "files" / folder.name, ignore_errors=True),
        ),
    ]


def _to_s3(home: Home, folder: Path, url: str, program: str) -> list[Contender]:
    """Each sends content that the store has not got.."""
    number = count(1_000_000)
    upload = ("data", "upload", str(folder), "--datastore", "s3", "--allow-large-data", "--quiet")

    def copy() -> str:
        target = f"s3://bucket/aws/{folder.name}-{next(number)}/"
        words = [program, "--endpoint-url", url, "s3", "cp", "--recursive", "--quiet"]
        return str(procs.run([*words, f"{folder}/", target], cwd=home.work, env=home.env))

    return [
        Contender(
            name=OURS,
            once=lambda: str(home.allranks(*upload)),
            before=lambda: _change(folder, next(number)),
        ),
        Contender(name=AWS, once=copy),
    ]


def _again(home: Home, folder: Path, number: int) -> float:
    for path in sorted(folder.iterdir())[:10]:
        _stamp(path, -1 - number)
    began = time.monotonic()
    home.allranks("data", "upload", str(folder), "--quiet")
    return time.monotonic() - began


def _ratio(samples: dict[str, list[float]], name: str, peer: str) -> float:
    return median(samples[f"{name}, {peer}"]) / median(samples[f"{name}, {OURS}"])


def write(folder: Path, files: int, size: int) -> None:
    folder.mkdir()
    for number in range(files):
        with (folder / f"{number:06}").open("wb") as file:
            for at in range(0, size, 1 << 24):
                file.write(os.urandom(min(1 << 24, size - at)))


def renew(home: Home, folder: Path, number: int) -> None:
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
def daemon(root: Path) -> Iterator[Path]:
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
