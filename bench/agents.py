"""A thousand agents that speak the wire to one server: hello, ready, GO, output, the end.

They are simulated, a coroutine each: what is measured is the server, not the starting of processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from allranks.events import Event, Kind
from allranks.plan.plan import pack
from allranks.statuses import Reason
from bench import procs
from bench.report import Result, table

_LINE = b"step 17: loss 0.4217, 1843.2 images a second\n"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, default=1000, metavar="N", help="agents (1000)")
    parser.add_argument("--gang", type=int, default=10, metavar="N", help="nodes of a job (10)")
    parser.add_argument("--prints", type=float, default=20.0, help="seconds that ranks print (20)")


class Agent:
    """One node's: a connection for orders, and one for what it has to say."""

    def __init__(self, port: int, token: str, node: int, found: Found) -> None:
        self.port, self.token, self.node, self.found = port, token, node, found
        self.said: list[Event] = []

    async def live(self, seconds: float) -> None:
        listens, speaks = Wire(self.port), Wire(self.port)
        attempt = (await self.ask(speaks, "POST", "hello", b"{}"))["attempt"]
        place = {"address": "10.0.0.1", "host": "h", "ports": [7000 + self.node]}
        await self.say(speaks, Kind.HELLO, attempt)
        ready = time.perf_counter()
        await self.say(speaks, Kind.READY, attempt, **place)
        await self.told(listens, attempt, "go")
        self.found.go.append((self.token, ready, time.perf_counter()))
        await self.say(speaks, Kind.STARTED, attempt)
        until, offset = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            await asyncio.sleep(1.0)
            where = f"logs/{attempt}/{self.node}?offset={offset}"
            offset = (await self.ask(speaks, "PUT", where, _LINE * 10))["size"]
        self.found.bytes += offset
        await self.say(speaks, Kind.ENDED, attempt, reason=Reason.DONE)
        await self.say(speaks, Kind.DRAINED, attempt)
        await self.told(listens, attempt, "leave")
        await self.say(speaks, Kind.BYE, attempt)
        listens.close()
        speaks.close()

    async def told(self, wire: Wire, attempt: int, what: str) -> None:
        known = ""
        while True:
            order = await self.ask(
                wire, "GET", f"orders?attempt={attempt}&known={known}", timed=False
            )
            known = order["id"]
            if order["do"] == what:
                return

    async def say(self, wire: Wire, kind: Kind, attempt: int, **data: Any) -> None:
        seq = len(self.said) + 1
        event = Event(kind, time.time(), 1, attempt, self.node, None, seq, data)
        self.said.append(event)
        body = json.dumps(pack([event._asdict()])).encode()
        await self.ask(wire, "POST", f"events?now={time.time()}", body)

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
        return json.loads(reply)


class Wire:
    """A kept connection; one that the server closed, for nothing was said on it, is opened anew."""

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
            self._open = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._open
        writer.write(question)
        told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(told.partition("content-length:")[2].partition("\r\n")[0])
        return told.split()[1], await reader.readexactly(size)


class Found:
    """What all agents saw."""

    def __init__(self) -> None:
        self.go: list[tuple[str, float, float]] = []
        self.took: list[float] = []
        self.status: Counter[str] = Counter()
        self.bytes = 0


def run(given: argparse.Namespace) -> Result:
    jobs, found = given.agents // given.gang, Found()
    # Two connections an agent, here and at the server, which has its limits from us.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="allranks-bench-") as root:
        words = [sys.executable, "-m", "bench.agents_server", f"{root}/home", jobs, given.gang]
        env = procs.environment(ALLRANKS_HOME=f"{root}/home")
        server = subprocess.Popen([*map(str, words)], env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            began, spent = time.perf_counter(), procs.cpu_seconds(server.pid)
            asyncio.run(_all(told, given, found))
            seconds = time.perf_counter() - began
            spent = procs.cpu_seconds(server.pid) - spent
            memory = procs.resident_mb(server.pid)
            kept = sum(path.stat().st_size for path in Path(root).rglob("std_log*"))
        finally:
            server.terminate()
            server.wait(20)
    return _result(given, found, seconds, spent, memory, kept)


async def _all(told: dict[str, Any], given: argparse.Namespace, found: Found) -> None:
    agents = [
        Agent(told["port"], token, node, found)
        for token in told["tokens"]
        for node in range(given.gang)
    ]
    await asyncio.gather(*(agent.live(given.prints) for agent in agents))


def _result(
    given: argparse.Namespace,
    found: Found,
    seconds: float,
    spent: float,
    memory: float,
    kept: int,
) -> Result:
    last: dict[str, float] = {}
    for token, ready, _ in found.go:
        last[token] = max(ready, last.get(token, 0.0))
    # From when the last of a gang said that it is ready, to when each knew of GO.
    go = sorted(heard - last[token] for token, _, heard in found.go)
    took, asked = sorted(found.took), sum(found.status.values())
    rows = [
        ("an answer to what agents say", *_spread(took)),
        ("GO, after the last of its gang is ready", *_spread(go)),
    ]
    head = (f"{given.agents} agents in gangs of {given.gang}, ms", "median", "95 %", "most")
    text = table(head, rows) + (
        f"\n{asked} requests in {seconds:.1f} s, {asked / seconds:.0f}/s; the server: "
        f"{spent / seconds:.2f} of a core, {memory:.0f} MB"
    )
    wrong = [f"{n} answers {code}" for code, n in found.status.items() if code != "200"]
    if kept != found.bytes:
        wrong.append(f"{kept} bytes of output are kept, of {found.bytes}")
    data = {"agents": given.agents, "seconds": seconds, "requests": asked, "cpu_s": spent}
    samples = {
        "s": {"an answer": took[:: max(1, len(took) // 1000)], "GO": go},
        "cores": {"the server": [spent / seconds]},
        "MB": {"the server": [memory]},
    }
    return Result(name="agents", text=text, samples=samples, data=data, wrong=wrong)


def _spread(values: list[float]) -> tuple[str, str, str]:
    return tuple(  # type: ignore[return-value]
        f"{each * 1e3:.1f}"
        for each in (median(values), values[int(len(values) * 0.95)], values[-1])
    )
