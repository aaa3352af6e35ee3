"""Thousands of agents that speak the wire to one server: hello, ready, GO, output, the end.

They are simulated, a coroutine each: what is measured is the server, not the starting of processes.
As real ones do, they ask for orders and send what their node uses, also while nothing happens.
First many at once, in gangs of eight; while those wait and print, single gangs of other sizes come.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from allranks.agent.monitoring.monitor import LOOK, Monitor
from allranks.agent.transport.tails import batch_pause
from allranks.core.packing import pack
from allranks.events import Event, Kind
from allranks.settings import Home
from allranks.statuses import Reason
from bench import procs
from bench.report import Bar, Result, table

_LINE = b"step 17: loss 0.4217, 1843.2 images a second\n"
_SMALL = 8


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--agents", type=int, default=1000, metavar="N", help="agents that are there (1000)")
    add("--gangs", default="8,64,512", metavar="N,…", help="nodes of gangs that come (8,64,512)")
    add("--gang-rounds", type=int, default=3, metavar="N", help="gangs of each size (3)")
    add("--agents-tls", action="store_true", help="as agents on other hosts speak")
    add(
        "--agents-watched",
        type=float,
        default=20.0,
        help="seconds of waiting, and of printing (20)",
    )


class Agent:
    """One node's: a connection for orders, and one for what it has to say."""

    def __init__(self, port: int, token: str, node: int, found: Found) -> None:
        self.port, self.token, self.node, self.found = port, token, node, found
        self.said: list[Event] = []
        self.attempt, self.offset = 0, 0
        self.began = self.due = 0.0
        # Points that are not sent yet, and how many bytes of them are.
        self.batch, self.used = b"", 0
        self.listens, self.speaks = Wire(port), Wire(port)

    async def start(self) -> float:
        """Say hello and wait for GO; seconds from the one to the other."""
        began = time.perf_counter()
        self.attempt = (await self.ask(self.speaks, "POST", "hello", b"{}"))["attempt"]
        place = {"address": "10.0.0.1", "host": "h", "ports": [7000 + self.node]}
        await self.say(Kind.HELLO)
        await self.say(Kind.READY, **place)
        await self.told("go")
        took = time.perf_counter() - began
        await self.say(Kind.STARTED)
        return took

    async def run(self, begin: asyncio.Event, prints: float) -> None:
        """Wait as one whose rank is silent, then send ten lines a second."""
        order, waits = asyncio.create_task(self.told("leave")), asyncio.create_task(begin.wait())
        self.began = time.perf_counter()
        while not (await asyncio.wait({waits}, timeout=LOOK))[0]:
            await self.use()
        until = time.perf_counter() + prints
        while time.perf_counter() < until:
            await asyncio.sleep(LOOK)
            where = f"logs/{self.attempt}/{self.node}?offset={self.offset}"
            answer = await self.ask(self.speaks, "PUT", where, _LINE * 10)
            self.found.bytes += answer["size"] - self.offset
            self.offset = answer["size"]
            await self.use()
        await self.use(last=True)
        await self.say(Kind.ENDED, reason=Reason.DONE)
        await self.say(Kind.DRAINED)
        await order
        await self.say(Kind.BYE)
        self.listens.close()
        self.speaks.close()

    async def use(self, last: bool = False) -> None:
        """Measure a point of each series; send them in batches, at the pace of a real agent."""
        now = time.perf_counter()
        self.batch += json.dumps({**self.found.use, "at": time.time()}).encode() + b"\n"
        if last or now >= self.due:
            self.due = now + batch_pause(now - self.began, self.node)
            self.found.points += self.batch.count(b"\n") * len(self.found.use["points"])
            where = f"points/{self.attempt}/resources?offset={self.used}"
            answer = await self.ask(self.speaks, "PUT", where, self.batch)
            self.batch, self.used = b"", answer["size"]

    async def told(self, what: str) -> None:
        known = ""
        while True:
            path = f"orders?attempt={self.attempt}&known={known}"
            order = await self.ask(self.listens, "GET", path, timed=False)
            known = order["id"]
            if order["do"] == what:
                return
            if order["do"] == "leave":
                raise RuntimeError(f"the agent of node {self.node} was told to leave")

    async def say(self, kind: Kind, **data: Any) -> None:
        seq = len(self.said) + 1
        event = Event(kind, time.time(), 1, self.attempt, self.node, None, seq, data)
        self.said.append(event)
        body = json.dumps(pack([event._asdict()])).encode()
        await self.ask(self.speaks, "POST", f"events?now={time.time()}", body)

    async def ask(
        self, wire: Wire, method: str, path: str, body: bytes = b"", timed: bool = True
    ) -> Any:
        began = time.perf_counter()
        head = f"{method} /agent/v1/{self.node}/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        head += f"authorization: Bearer {self.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        status, reply = await wire.ask(head.encode() + body)
        self.found.status[status] += 1
        if timed:
            self.found.took.append(time.perf_counter() - began)
        # Each agent reads the places of all nodes, but not all on this machine.
        return json.loads(reply.partition(b', "places"')[0] + b"}" if b"places" in reply else reply)


class Wire:
    """A kept connection, with ``tls`` or without; one that the server closed, for nothing was said
    on it, is opened anew."""

    tls: ssl.SSLContext | None = None

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: bytes) -> tuple[str, bytes]:
        kept = self._open is not None
        try:
            return await self._ask(question)
        except (OSError, asyncio.IncompleteReadError):
            if not kept:
                raise
            self.close()
            return await self._ask(question)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open = None

    async def _ask(self, question: bytes) -> tuple[str, bytes]:
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self._port, ssl=self.tls)
        reader, writer = self._open
        writer.write(question)
        told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(told.partition("content-length:")[2].partition("\r\n")[0])
        return told.split()[1], await reader.readexactly(size)


class Found:
    """What all agents saw. ``spent``: seconds on the wall, of the server's CPU and of that of all
    agents, by part."""

    def __init__(self) -> None:
        self.go: dict[int, list[float]] = defaultdict(list)
        self.took: list[float] = []
        self.status: Counter[str] = Counter()
        self.bytes = self.points = 0
        # What a node uses, as a real agent writes it.
        self.use: dict[str, Any] = {}
        self.spent: dict[str, tuple[float, float, float]] = {}
        self.memory: dict[str, float] = {}


def run(given: argparse.Namespace) -> Result:
    sizes, found = [int(each) for each in given.gangs.split(",")], Found()
    gangs = [_SMALL] * (given.agents // _SMALL) + sizes * given.gang_rounds
    # Two connections an agent, here and at the server, which has its limits from us.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="allranks-bench-") as root:
        found.use = _measured(Path(root, "use"))
        door = "tls" if given.agents_tls else "plain"
        Wire.tls = ssl._create_unverified_context() if given.agents_tls else None
        words = [sys.executable, "-m", "bench.agents_server", f"{root}/home", door]
        words += map(str, gangs)
        env = procs.environment(ALLRANKS_HOME=f"{root}/home")
        server = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            asyncio.run(_all(told, server.pid, gangs, given, found))
            kept = sum(path.stat().st_size for path in Path(root).rglob("std_log*"))
        finally:
            server.terminate()
            server.wait(20)
        points = _points(Path(root, "home"))
    return _result(given, found, kept, points)


def _measured(into: Path) -> dict[str, Any]:
    """What this process and this machine use, as an agent of a rank writes it."""
    monitor = Monitor(lambda: {0: os.getpid()}, into)
    time.sleep(2 * LOOK)
    monitor.stop()
    line: dict[str, Any] = json.loads(into.read_bytes().splitlines()[-1])
    return line


def _points(home: Path) -> int:
    """The points in the record."""
    with contextlib.closing(sqlite3.connect(Home(home).database)) as database:
        (count,) = database.execute("SELECT sum(length) FROM series").fetchone()
    return int(count or 0)


async def _all(
    told: dict[str, Any], pid: int, gangs: list[int], given: argparse.Namespace, found: Found
) -> None:
    all_gangs = [
        [Agent(told["port"], token, node, found) for node in range(size)]
        for token, size in zip(told["tokens"], gangs, strict=True)
    ]
    first = given.agents // _SMALL
    there, coming = all_gangs[:first], all_gangs[first:]
    agents = [agent for gang in there for agent in gang]
    found.memory["before"] = procs.resident_mb(pid)
    part = _Part(pid, found)
    await asyncio.gather(*(agent.start() for agent in agents))
    part.ends("all say hello at once, until GO")
    begin, now = asyncio.Event(), asyncio.Event()
    now.set()
    tasks = [asyncio.create_task(agent.run(begin, given.agents_watched)) for agent in agents]
    # After half a minute, batches of points are as long as they get.
    await asyncio.sleep(1.5 * given.agents_watched)
    part.ends("")
    await asyncio.sleep(given.agents_watched)
    part.ends("nothing happens")
    for gang in coming:
        found.go[len(gang)] += await asyncio.gather(*(agent.start() for agent in gang))
        part.ends(f"a gang of {len(gang)} comes")
        await asyncio.gather(*(agent.run(now, 0) for agent in gang))
        part.ends("")
    begin.set()
    await asyncio.gather(*tasks)
    part.ends("all print ten lines a second, and end")
    found.memory["after"] = procs.resident_mb(pid)


class _Part:
    """Measures from the end of one part to that of the next."""

    def __init__(self, pid: int, found: Found) -> None:
        self._pid, self._found = pid, found
        self._at = self._now()

    def ends(self, what: str) -> None:
        before, self._at = self._at, self._now()
        if what:
            already = self._found.spent.get(what, (0.0, 0.0, 0.0))
            more = (b - a for a, b in zip(before, self._at, strict=True))
            wall, server, agents = (a + b for a, b in zip(already, more, strict=True))
            self._found.spent[what] = (wall, server, agents)

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), procs.cpu_seconds(self._pid), time.process_time()


def _result(given: argparse.Namespace, found: Found, kept: int, points: int) -> Result:
    times = {f"hello → GO, gangs of {size}": each for size, each in found.go.items()}
    times["an answer to what agents say"] = found.took
    rows = [
        (what, *(f"{each * 1e3:.0f}" for each in _spread(took))) for what, took in times.items()
    ]
    text = table((f"beside {given.agents} agents, ms", "median", "99 %", "most"), rows)
    spent = [
        (what, f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / wall:.2f}", f"{agents / wall:.2f}")
        for what, (wall, cpu, agents) in found.spent.items()
    ]
    text += "\n" + table(("the server", "seconds", "of CPU", "cores", "agents' cores"), spent)
    text += f"\nmemory: {found.memory['before']:.0f} MB, with agents {found.memory['after']:.0f} MB"
    wrong = [f"{n} answers {code}" for code, n in found.status.items() if code != "200"]
    if kept != found.bytes:
        wrong.append(f"{kept} bytes of output are kept, of {found.bytes}")
    if points != found.points:
        wrong.append(f"{points} points are kept, of {found.points}")
    data = {"agents": given.agents, "spent_s": found.spent, "memory_mb": found.memory}
    samples = {
        "s": {**times, "an answer to what agents say": found.took[:: len(found.took) // 1000 + 1]},
        "cores": {what: [cpu / wall] for what, (wall, cpu, _) in found.spent.items()},
        "MB": {f"the server, {when}": [memory] for when, memory in found.memory.items()},
    }
    busy = found.spent["all print ten lines a second, and end"]
    bars = [
        Bar(what=f"hello → GO, a gang of {size}, 99 %, s", found=_spread(took)[1], most=2.0)
        for size, took in found.go.items()
    ]
    bars.append(Bar(what="the server while all print, cores", found=busy[1] / busy[0], most=1.0))
    bars.append(Bar(what="the server's memory, MB", found=found.memory["after"], most=300.0))
    return Result(name="agents", text=text, samples=samples, data=data, wrong=wrong, bars=bars)


def _spread(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]
