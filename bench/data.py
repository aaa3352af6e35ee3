"""Data from an S3 to a node, beside the AWS CLI: one large file, many small ones, and nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import obstore
from obstore.store import S3Store

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, nothing, spreads
from bench.rounds import Contender, alternate
from bench.stats import interval, paired

OURS, AWS = "allranks", "aws s3 cp"
AGAIN, WITHOUT = "allranks run, the data there already", "allranks run, no data"
LARGE, SMALL = "large", "small"
STREAM, AWS_STREAM = "allranks, a stream read by curl", "aws s3 cp … -"
_SEED = 12
# Moto asks for none; of s3rver these are the only ones.
_WHO = {"access_key_id": "S3RVER", "secret_access_key": "S3RVER"}
_ENV = {
    "AWS_ACCESS_KEY_ID": _WHO["access_key_id"],
    "AWS_SECRET_ACCESS_KEY": _WHO["secret_access_key"],
    "AWS_DEFAULT_REGION": "us-east-1",
}


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    server = "the S3 that both are asked: a command with {port} in it, and {folder} ('%(default)s')"
    add("--server", default="moto_server -p {port}", metavar="COMMAND", help=server)
    add("--large-rounds", type=int, default=5, metavar="N", help="rounds of the large file (5)")
    add("--small-rounds", type=int, default=2, metavar="N", help="rounds of the small ones (2)")
    add("--again", type=int, default=9, metavar="N", help="rounds of jobs with data there (9)")
    add("--megabytes", type=int, default=1000, metavar="N", help="size of the large file (1000)")
    add("--objects", type=int, default=10_000, metavar="N", help="small files of 10 kB (10000)")


def run(given: argparse.Namespace) -> Result:
    words = shlex.split(given.server)
    beside = peers.program("aws", words[0]) or shutil.which(words[0])
    if beside is None:
        return nothing("data", f"no {words[0]} (--server, or {peers.hint('aws')})")
    words[0] = beside
    with tempfile.TemporaryDirectory(prefix="allranks-bench-") as made:
        place = Path(made)
        with _store(words, place) as endpoint:
            config: Any = {"endpoint": endpoint, "region": "us-east-1", **_WHO}
            opened = S3Store("bucket", config=config, client_options={"allow_http": True})
            dice = random.Random(_SEED)
            noise = b"".join(dice.randbytes(1_000_000) for _ in range(given.megabytes))
            obstore.put(opened, f"{LARGE}/one.bin", noise)
            for number in range(given.objects):
                start = number * 97
                obstore.put(opened, f"{SMALL}/{number:05}.bin", noise[start : start + 10_000])
            rounds = {LARGE: given.large_rounds, SMALL: given.small_rounds}
            found = {
                what: alternate(_contenders(place, endpoint, what), count)
                for what, count in rounds.items()
                if count
            }
            wrong = _differ(place)
            streams = _streams(place, endpoint, given.large_rounds)
            again = {what: _again(endpoint, what, given.again, wrong) for what in found}
    return _result(given, found, again, streams, wrong)


def _again(endpoint: str, what: str, rounds: int, wrong: list[str]) -> dict[str, list[float]]:
    """Jobs whose input is on the node, beside jobs without one."""
    with Home() as home:
        words = ["--type", "s3", "--bucket", "bucket", "--endpoint", endpoint]
        secrets = home.work / "who.yml"
        secrets.write_text(json.dumps(_WHO))
        home.allranks("datastore", "create", "store", *words, "--credentials", str(secrets))
        data = ["-i", f"x=azureml://datastores/store/paths/{what}"]
        (home.work / "code").mkdir()
        run = partial(home.allranks, cwd=home.work / "code")
        run("run", *data, "--", "true")
        samples, _ = alternate(
            [
                Contender(name=AGAIN, once=partial(run, "run", *data, "--", "true")),
                Contender(name=WITHOUT, once=partial(run, "run", "--", "true")),
            ],
            rounds,
        )
    wrong += home.left
    return samples


def _aws(endpoint: str) -> list[str]:
    return [peers.program("aws") or "aws", *("--endpoint-url", endpoint, "s3", "cp", "--quiet")]


def _contenders(place: Path, endpoint: str, what: str) -> list[Contender]:
    cache, goal = place / f"cache-{what}", place / f"aws-{what}"

    def clear(folder: Path) -> None:
        subprocess.run(["chmod", "-R", "u+w", folder], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)

    aws = [*_aws(endpoint), "--recursive"]
    env = {**os.environ, **_ENV}
    return [
        Contender(
            name=OURS, once=partial(_ours, cache, endpoint, what), before=lambda: clear(cache)
        ),
        Contender(
            name=AWS,
            once=lambda: procs.run([*aws, f"s3://bucket/{what}", str(goal)], cwd=place, env=env),
            before=lambda: clear(goal),
        ),
    ]


def _streams(place: Path, endpoint: str, rounds: int) -> Mapping[str, list[float]]:
    """The large file read once, and kept nowhere."""
    if not rounds:
        return {}
    each = {"name": "x", "uri": f"s3://bucket/{LARGE}/one.bin", **_account(endpoint)}

    def ours() -> None:
        with _mover({"streams": [each], "read": str(place / "read.json")}) as url:
            procs.run(
                ["curl", "--fail", "--silent", "--output", "/dev/null", url],
                cwd=place,
                env=os.environ,
            )

    aws = [*_aws(endpoint), str(each["uri"]), "-"]
    line = f"{shlex.join(aws)} >/dev/null"
    env = {**os.environ, **_ENV}
    samples, _ = alternate(
        [
            Contender(name=STREAM, once=ours),
            Contender(
                name=AWS_STREAM, once=lambda: procs.run(["sh", "-c", line], cwd=place, env=env)
            ),
        ],
        rounds,
    )
    return samples


def _ours(cache: Path, endpoint: str, what: str) -> None:
    """What an agent does for an input, from the start of its mover to the word that it is there."""
    each = {"name": "x", "uri": f"s3://bucket/{what}", **_account(endpoint)}
    with _mover({"cache": str(cache), "limit": None, "inputs": [each]}):
        pass  # what it holds, it holds as long as its job runs


def _account(endpoint: str) -> dict[str, Any]:
    store = {"kind": "s3", "bucket": "bucket", "endpoint": endpoint}
    return {"account": {"store": store, "credentials": _WHO}, "share": None}


@contextmanager
def _mover(request: Mapping[str, Any]) -> Iterator[str]:
    """One that has done what was asked for; where its last input is."""
    argv = [sys.executable, "-P", "-m", "allranks.agent.data.mover"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as mover:
        assert mover.stdin is not None
        assert mover.stdout is not None
        mover.stdin.write(json.dumps(request) + "\n")
        mover.stdin.flush()
        said, path = {}, ""
        for line in mover.stdout:
            said = json.loads(line)
            path = said.get("path", path)
            if "done" in said and "input" not in said:
                break
        if said != {"done": True}:
            raise RuntimeError(said)
        yield path
        mover.kill()


@contextmanager
def _store(words: Sequence[str], place: Path) -> Iterator[str]:
    """An S3 with an empty bucket."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    (place / "store").mkdir()
    argv = [word.format(port=port, folder=place / "store") for word in words]
    with (place / "store.log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                make = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
                with contextlib.suppress(urllib.error.HTTPError):  # it has it, or gives it to some
                    urllib.request.urlopen(make, timeout=5).close()
                break
            except OSError:
                if time.monotonic() > until or server.poll() is not None:
                    raise
                time.sleep(0.1)
        yield endpoint
    finally:
        server.kill()
        server.wait()


def _differ(place: Path) -> list[str]:
    """What does not hold the same as what the AWS CLI fetched."""
    wrong = []
    for what in (LARGE, SMALL):
        theirs = place / f"aws-{what}"
        for ours in (place / f"cache-{what}").glob("*/data"):
            done = subprocess.run(["diff", "-rq", ours, theirs], capture_output=True, text=True)
            wrong += done.stdout.splitlines()[:5]
    return wrong


def _result(
    given: argparse.Namespace,
    found: Mapping[str, Any],
    again: Mapping[str, Mapping[str, list[float]]],
    streams: Mapping[str, list[float]],
    wrong: list[str],
) -> Result:
    samples_s: dict[str, list[float]] = {}
    bars: list[Bar] = []
    data: dict[str, Any] = {}
    notes = ""
    titles = {
        LARGE: f"one file of {given.megabytes} MB",
        SMALL: f"{given.objects} files of 10 kB",
    }
    least = {LARGE: 0.9, SMALL: 2.0}
    for what, (samples, orders) in found.items():
        all_ = {**samples, **again[what], **(streams if what == LARGE else {})}
        for name, values in all_.items():
            samples_s[f"{titles[what]}: {name}"] = values
        rates = paired(samples[AWS], samples[OURS])
        low, high = interval(rates)
        notes += f"\n{titles[what]}: {median(rates):.2f} × the rate of the AWS CLI"
        notes += f" (95 %: {low:.2f} to {high:.2f})"
        what_ = f"{titles[what]}: rate × that of the AWS CLI"
        bars.append(Bar(what=what_, found=median(rates), least=least[what]))
        more = median(again[what][AGAIN]) - median(again[what][WITHOUT])
        bars.append(Bar(what=f"{titles[what]}, there already: seconds more", found=more, most=0.1))
        data[what] = {"orders": orders}
    if streams:
        rates = paired(streams[AWS_STREAM], streams[STREAM])
        low, high = interval(rates)
        notes += f"\n{titles[LARGE]}, read once: {median(rates):.2f} × the rate of the AWS CLI"
        notes += f" (95 %: {low:.2f} to {high:.2f})"
    data |= {"server": given.server, "megabytes": given.megabytes, "objects": given.objects}
    return Result(
        name="data",
        text=spreads("seconds", samples_s) + notes,
        samples={"s": samples_s},
        data=data,
        bars=bars,
        wrong=wrong,
    )
