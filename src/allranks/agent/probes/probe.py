"""What `allranks doctor --job` runs on each node of a job's compute, by the job's own Python.

Every node says what it has, meets the others at the address and port that node 0 was given, and
tries the way to each of them: connecting, sending, adding numbers up. Each thing found is a line of
JSON on standard output, which doctor reads; every wait has an end, and the exit code is 0 whatever
was found. Standard library only, for Python 3.7 on.

    meeting (node 0)   join → table of all who came       done → once all are
    listener (each)    echo · sink (bytes, for a while) · pass (a sum on its way round the ring)
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.agent.probes.facts import facts, looked
from allranks.agent.probes.wire import Way, ask, dial, error_text, listen, requests, send

# A firewall that drops says nothing: so long is "no answer". Machines of a cluster are under 1 ms.
PATIENCE = 1.5
# As much as one way is sent, at most for so long.
AMOUNT, SPAN = 4 << 20, 0.3
NUMBERS = 256
PIECE = b"\0" * (1 << 16)


class Probe:
    """One node's part. ``options`` say what doctor wants to know."""

    def __init__(self, options: dict[str, Any], environ: Any, out: Callable[[str], None]) -> None:
        self.options, self._out = options, out
        self.job = environ["ALLRANKS_JOB"]
        self.node = int(environ["ALLRANKS_NODE_RANK"])
        self.addresses = [node["address"] for node in json.loads(environ["ALLRANKS_NODES"])]
        self.master = environ["AZ_BATCH_MASTER_NODE"]
        self.began = time.monotonic()
        self.table: dict[int, tuple[str, int]] = {}
        self.sums: dict[str, list[int]] = {}
        self.changed = threading.Condition()

    def report(self, kind: str, **fields: Any) -> None:
        self._out(json.dumps({"preflight": kind, "node": self.node, **fields}))

    def left(self, name: str) -> float:
        """Seconds until the end of ``meet`` or of ``total``."""
        return max(0.0, self.began + float(self.options[name]) - time.monotonic())

    def run(self) -> None:
        self.report("facts", **facts(self.options, self.addresses[self.node], self.addresses))
        looking = threading.Thread(target=self._look, daemon=True)
        looking.start()
        listener = listen(self.addresses[self.node], 0, self._serve)
        if self.node == 0:
            address, port = self.master.rsplit(":", 1)
            try:
                Meeting(self, address, int(port))
            except OSError as error:
                self.report("met", why=f"cannot listen at {self.master}: {error_text(error)}")
        control = self._join(listener.getsockname()[1])
        looking.join(self.left("total") / 2)
        if control is not None:
            self._links()
            self._sum()
            with contextlib.suppress(OSError, ValueError):
                ask(control, {"do": "done", "job": self.job, "node": self.node})
        looking.join(self.left("total"))

    def _look(self) -> None:
        # A dead network disk does not answer: the node itself still does.
        self.report("looked", **looked(self.options))

    def _join(self, port: int) -> Way | None:
        """Meet the others; None, told, when node 0 cannot be reached."""
        host, _, number = self.master.rpartition(":")
        why = "nobody listens"
        while self.left("meet"):
            try:
                control = dial(host, int(number), min(PATIENCE, self.left("meet") + 0.1))
                control.socket.settimeout(self.left("total") + 0.1)
                self._clock(control)
                hello = {"do": "join", "job": self.job, "node": self.node, "port": port}
                hello["address"] = self.addresses[self.node]
                met = ask(control, hello)
                if "table" not in met:
                    raise ValueError(met.get("why", "it was refused"))
            except (OSError, ValueError) as error:
                why = error_text(error)
                time.sleep(0.05)
                continue
            self.table = {int(node): (where[0], where[1]) for node, where in met["table"].items()}
            self.report("met", why="", present=sorted(self.table), of=len(self.addresses))
            return control
        self.report("met", why=f"cannot reach node 0 at {self.master}: {why}")
        return None

    def _clock(self, control: Way) -> None:
        """How far node 0's clock is ahead of ours, by the quickest of a few questions."""
        best = (float("inf"), 0.0)
        for _ in range(4):
            before = time.time()
            theirs = ask(control, {"do": "clock", "job": self.job})["now"]
            after = time.time()
            best = min(best, (after - before, theirs - (before + after) / 2))
        self.report("clock", ahead=best[1], within=best[0] / 2)

    # ------------------------------------------------------------ links

    def _links(self) -> None:
        """Try the way to each of the others: first all at once, then one after another for speed,
        each node sending to one and receiving from one at a time."""
        others = [node for node in sorted(self.table) if node != self.node]
        links: dict[int, dict[str, Any]] = {
            node: {"why": "not tried: too little time"} for node in others
        }
        waiting = list(others)

        def work() -> None:
            while waiting and self.left("total") > PATIENCE:
                with contextlib.suppress(IndexError):
                    node = waiting.pop()
                    links[node] = self._echo(node)

        workers = [threading.Thread(target=work, daemon=True) for _ in others[:32]]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(self.left("total"))
        place = sorted(self.table).index(self.node)
        for node in others[place:] + others[:place]:
            if links[node]["why"] == "" and self.left("total") > 2 * SPAN:
                with contextlib.suppress(OSError, ValueError):
                    # The better of two: the first one also pays for everything that is cold.
                    links[node]["mb_s"] = max(self._speed(node), self._speed(node))
        self.report("links", links={str(node): link for node, link in links.items()})

    def _echo(self, node: int) -> dict[str, Any]:
        try:
            way = dial(*self.table[node], timeout=PATIENCE)
            with way.socket:
                times = []
                for _ in range(3):
                    before = time.monotonic()
                    back = ask(way, {"do": "echo", "job": self.job})
                    times.append(time.monotonic() - before)
                if back.get("node") != node:
                    return {"why": "another program listens there"}
                return {"why": "", "ms": min(times) * 1000}
        except (OSError, ValueError) as error:
            return {"why": error_text(error)}

    def _speed(self, node: int) -> float:
        """MB/s to a node: sent for a short while, then told how much has arrived."""
        way = dial(*self.table[node], timeout=PATIENCE)
        with way.socket:
            send(way, {"do": "sink", "job": self.job})
            began, left = time.monotonic(), AMOUNT
            while left > 0 and time.monotonic() < began + SPAN:
                way.socket.sendall(PIECE)
                left -= len(PIECE)
            way.socket.shutdown(socket.SHUT_WR)
            arrived = float(json.loads(way.file.readline())["bytes"])
            return arrived / 1e6 / max(1e-6, time.monotonic() - began)

    # ------------------------------------------------------------ a sum over all nodes

    def _sum(self) -> None:
        """A ring: the sum grows from node to node, and the whole goes round a second time."""
        ring = sorted(self.table)
        place = ring.index(self.node)
        own = [(self.node + 1) * (k + 1) for k in range(NUMBERS)]
        try:
            before = [0] * NUMBERS if place == 0 else self._arrived("part")
            part = [a + own[k] for k, a in enumerate(before)]
            if place < len(ring) - 1:
                self._pass(ring[place + 1], "part", part)
                whole = self._arrived("whole")
            else:
                whole = part
            # From the last on to the first, and up to the last but one.
            if len(ring) > 1 and place != len(ring) - 2:
                self._pass(ring[(place + 1) % len(ring)], "whole", whole)
            right = [sum(n + 1 for n in ring) * (k + 1) for k in range(NUMBERS)]
            self.report("sum", right=whole == right, why="" if whole == right else "a wrong sum")
        except (OSError, ValueError) as error:
            self.report("sum", right=False, why=error_text(error))

    def _pass(self, node: int, name: str, numbers: list[int]) -> None:
        way = dial(*self.table[node], timeout=PATIENCE)
        with way.socket:
            ask(way, {"do": "pass", "job": self.job, "name": name, "numbers": numbers})

    def _arrived(self, name: str) -> list[int]:
        with self.changed:
            self.changed.wait_for(lambda: name in self.sums, max(0.0, self.left("total") - 0.5))
            if name not in self.sums:
                raise TimeoutError("no sum arrived from the previous node")
            return self.sums[name]

    def _serve(self, way: Way) -> None:
        for request in requests(way, self.job):
            if request["do"] == "echo":
                send(way, {"node": self.node})
            elif request["do"] == "sink":
                count = 0
                while True:
                    data = way.file.read1(1 << 16)  # type: ignore[attr-defined]
                    if not data:
                        break
                    count += len(data)
                send(way, {"bytes": count})
            elif request["do"] == "pass":
                with self.changed:
                    self.sums[request["name"]] = request["numbers"]
                    self.changed.notify_all()
                send(way, {})


class Meeting:
    """Where all nodes come together: at node 0, on the port that the job's rank 0 is given."""

    def __init__(self, probe: Probe, address: str, port: int) -> None:
        self._probe = probe
        self._table: dict[str, Any] = {}
        self._done: set[int] = set()
        self._closed = False
        self._changed = threading.Condition()
        listen(address, port, self._serve)

    def _complete(self) -> bool:
        return self._closed or len(self._table) == len(self._probe.addresses)

    def _serve(self, way: Way) -> None:
        probe = self._probe
        for request in requests(way, probe.job):
            with self._changed:
                if request["do"] == "join" and not self._closed:
                    self._table[str(request["node"])] = [request["address"], request["port"]]
                    self._changed.notify_all()
                    self._changed.wait_for(self._complete, probe.left("meet"))
                    self._closed = True
                    self._changed.notify_all()
                    answer: dict[str, Any] = {"table": self._table}
                elif request["do"] == "done":
                    self._done.add(request["node"])
                    self._changed.notify_all()
                    self._changed.wait_for(
                        lambda: len(self._done) == len(self._table), probe.left("total")
                    )
                    answer = {}
                elif request["do"] == "join":
                    answer = {"why": "it arrived after the others had continued without it"}
                else:
                    answer = {"now": time.time()}
            send(way, answer)


def main() -> None:
    """The whole of a node's part; ``asked.json`` lies beside the program that is run."""
    lock = threading.Lock()

    def out(line: str) -> None:
        with lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    options = json.loads(Path(sys.argv[0], "asked.json").read_text())
    Probe(options, os.environ, out).run()
    # Threads that still wait for a dead disk or a silent peer are not waited for.
    os._exit(0)
