"""Inputs from the server to nodes that share no disk with it: one node beside rsync, then many at
once, while somebody lists the jobs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from allranks.agent.data.from_server import InputServer, ServerInput
from allranks.agent.data.input_request import InputRequest
from allranks.agent.transport.link import ServerAddress
from allranks.http_client import Client, fingerprint_of
from bench.report import Bar, Result, table

_CHUNK = 64 << 20


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--input-megabytes", type=int, default=1000, metavar="N", help="size of the file (1000)")
    add("--input-nodes", type=int, default=16, metavar="N", help="nodes at once (16)")
    add("--input-rounds", type=int, default=3, metavar="N", help="rounds of one node (3)")


def run(given: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="allranks-bench-") as folder:
        root, size = Path(folder), given.input_megabytes * 1_000_000
        data = root / "home" / "data" / "set" / "large"
        data.parent.mkdir(parents=True)
        with data.open("wb") as file:
            for left in range(size, 0, -_CHUNK):
                file.write(os.urandom(min(_CHUNK, left)))
        bare, nodes = root / "plain" / "data" / "set", given.input_nodes
        bare.mkdir(parents=True)
        os.link(data, bare / "large")
        with (
            serving(root / "home", "tls", nodes, data.parent) as secured,
            serving(root / "plain", "plain", nodes, bare) as plain,
        ):
            return _measured(given, root, data, json.dumps(secured), json.dumps(plain))


@contextmanager
def serving(home: Path, door: str, nodes: int, data: Path) -> Iterator[list[str]]:
    """A server of the data, which is in its home, over TLS or plain: how nodes reach it."""
    words = ("bench.agents_server", str(home), door, str(nodes), str(data))
    server = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        url, fingerprint = f"http://127.0.0.1:{told['port']}", ""
        if door == "tls":
            url = url.replace("http", "https")
            while not (fingerprint := fingerprint_of(url)):
                time.sleep(0.1)
        yield [url, told["tokens"][0], fingerprint]
    finally:
        server.terminate()
        server.wait()


def _measured(given: argparse.Namespace, root: Path, data: Path, where: str, plain: str) -> Result:
    ours, theirs, bare = list[float](), list[float](), list[float]()
    with _Rsync(root, data.parent) as rsync:
        for number in range(given.input_rounds):
            ours.append(_timed(_fetcher(where, 0, root / f"ours-{number}")))
            theirs.append(_timed(rsync.start(root / f"theirs-{number}")))
            bare.append(_timed(_fetcher(plain, 0, root / f"bare-{number}")))
            for name in ("ours", "theirs", "bare"):
                shutil.rmtree(root / f"{name}-{number}")
    began, waits = time.perf_counter(), list[float]()
    nodes = range(given.input_nodes)
    running = [_fetcher(where, node, root / f"node-{node}") for node in nodes]
    done = threading.Event()
    lister = threading.Thread(target=_list_jobs, args=(root / "home", where, waits, done))
    lister.start()
    assert all(each.wait() == 0 for each in running)
    many = time.perf_counter() - began
    done.set()
    lister.join()
    size = data.stat().st_size / 1e6
    rates = {"rsync, no TLS": theirs, "allranks, no TLS": bare, "allranks, over TLS": ours}
    many_rate = size * given.input_nodes / many
    mine, other, unsecured = (size / median(each) for each in (ours, theirs, bare))
    waits.sort()
    slowest = waits[int(len(waits) * 0.99)]
    rows = [
        ["one node, allranks over TLS", f"{mine:.0f} MB/s"],
        ["one node, allranks without TLS", f"{unsecured:.0f} MB/s"],
        ["one node, rsync's daemon without TLS", f"{other:.0f} MB/s"],
        [f"{given.input_nodes} nodes together", f"{many_rate:.0f} MB/s"],
        ["job list meanwhile, median", f"{median(waits):.3f} s"],
        ["job list meanwhile, 99 of 100", f"{slowest:.3f} s"],
    ]
    bars = (
        Bar(what="one node beside rsync, both without TLS", found=unsecured / other, least=0.5),
        Bar(what="seconds of 99 of 100 lists of jobs", found=slowest, most=1.0),
    )
    samples = {"s": rates, "s, job list": {"meanwhile": waits}}
    return Result(name="inputs", text=table(("", ""), rows), samples=samples, bars=bars)


def _timed(process: subprocess.Popen[bytes]) -> float:
    began = time.perf_counter()
    assert process.wait() == 0
    return time.perf_counter() - began


def _fetcher(where: str, node: int, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "bench.inputs", where, str(node), str(folder)])


def _list_jobs(home: Path, where: str, waits: list[float], done: threading.Event) -> None:
    url, _, fingerprint = json.loads(where)
    token = (home / "token").read_text().strip()
    with Client(url, token, fingerprint=fingerprint) as client:
        while not done.wait(0.05):
            began = time.perf_counter()
            client.json("GET", "/api/v1/jobs")
            waits.append(time.perf_counter() - began)


class _Rsync:
    """Its daemon, which serves a folder."""

    def __init__(self, root: Path, data: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._config = root / "rsyncd.conf"
        self._config.write_text(f"use chroot = no\n[d]\npath = {data}\n")

    def __enter__(self) -> _Rsync:
        words = ["--daemon", "--no-detach", f"--config={self._config}", f"--port={self._port}"]
        self._daemon = subprocess.Popen(["rsync", *words, "--address=127.0.0.1"])
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return self
            except OSError:
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._daemon.terminate()
        self._daemon.wait()

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        source = f"rsync://127.0.0.1:{self._port}/d/"
        return subprocess.Popen(["rsync", "-aW", "--inplace", source, f"{folder}/"])


def _fetch(where: str, node: int, folder: Path) -> None:
    server = InputServer(ServerAddress(*json.loads(where)), node, threading.Event())
    source = ServerInput(InputRequest("d", source="d"), server)
    items, _ = source.list_files()
    folder.mkdir()
    (folder / "journal").touch()
    source.fetch(items, folder / "data", folder / "journal", lambda size, moved: None)


if __name__ == "__main__":
    _fetch(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
