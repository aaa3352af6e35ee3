"""Where the processes of a live job are: asked of its agents by their orders, gathered, kept.

A question is a number that agents find beside their orders until it is too old; like orders it is
no message, and nothing is lost with it but itself. What they answer is in memory until all have,
then a file of the job's record.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from allranks.plan.diagnosis import stacks
from allranks.plan.diagnosis.stacks import Process
from allranks.plan.distributions.topology import ranks_of
from allranks.plan.plan import pack
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Home
from allranks.statuses import NodeState
from allranks.store.job_rows import JobRow

# Seconds that agents are asked for, and that whoever asks waits for them. An agent that the server
# reaches by its disk alone looks every so often.
PATIENCE = 5.0
# What agents tell of a node: a rank's stacks are some kilobytes.
MOST = 16 << 20


class Answers:
    """What came of one question."""

    def __init__(self, number: int, row: JobRow) -> None:
        self.number, self.launch, self.attempt = number, row.record.launch, row.record.attempt
        self.at = time.time()
        self.until = time.monotonic() + PATIENCE
        self.awaited = set(running(row))
        self.found: dict[int, list[Process]] = {}

    @property
    def missing(self) -> list[int]:
        """Nodes that have not answered."""
        return sorted(self.awaited - self.found.keys())

    @property
    def over(self) -> bool:
        return not self.missing or time.monotonic() > self.until

    @property
    def processes(self) -> list[Process]:
        return [each for node in sorted(self.found) for each in self.found[node]]


class Stacks:
    """The newest question of each job. From any thread."""

    def __init__(self, home: Home, bell: Wakeups) -> None:
        self._home, self._bell = home, bell
        self._asked: dict[str, Answers] = {}
        self._lock = threading.Lock()

    def ask(self, row: JobRow) -> Answers:
        """Have every node asked that runs ranks; who has just been asked answers for both."""
        with self._lock:
            last = self._asked.get(row.name)
            if last is not None and not last.over and last.attempt == row.record.attempt:
                return last
            number = max(int(time.time() * 1000), last.number + 1 if last else 0)
            self._asked[row.name] = answers = Answers(number, row)
        self._bell.ring(row.name)
        return answers

    def number(self, row: JobRow) -> int:
        """The question that its agents are to answer now, 0 for none."""
        last = self._asked.get(row.name)
        if last is None or last.over or last.attempt != row.record.attempt:
            return 0
        return last.number

    def take(self, name: str, node: int, number: int, told: Any) -> None:
        """What a node has answered. Raises ValueError, TypeError or KeyError when it is none."""
        processes = [stacks.load(each)._replace(node=node) for each in told]
        with self._lock:
            last = self._asked.get(name)
            if last is not None and last.number == number:
                last.found[node] = processes
        self._bell.ring(name)

    def forget(self, name: str) -> None:
        with self._lock:
            self._asked.pop(name, None)

    # ------------------------------------------------------------ kept

    def keep(self, name: str, answers: Answers, what: str = "stacks") -> dict[str, Any]:
        """Write them into the record, in the place of what was asked of that attempt before."""
        told = {
            "attempt": answers.attempt,
            "at": answers.at,
            "missing": answers.missing,
            "processes": pack(answers.processes),
        }
        folder = self._home.jobs / name / "attempts" / str(answers.attempt) / "system_logs"
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f"{what}.new"
        beside.write_text(json.dumps(told))
        beside.replace(folder / f"{what}.json")
        return told

    def kept(self, name: str) -> dict[str, Any] | None:
        """The newest in the record, as people are told of it."""
        found: list[tuple[float, dict[str, Any]]] = []
        for path in self._home.jobs.joinpath(name).glob("attempts/*/system_logs/*stacks.json"):
            # Agents of another version may have told what cannot be read as stacks.
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                told = json.loads(path.read_text())
                found.append((float(told["at"]), shown(told)))
        return max(found, key=lambda each: each[0], default=(0.0, None))[1]


def running(row: JobRow) -> Iterable[int]:
    """The nodes of which ranks run."""
    task = row.plan.task
    for index, node in enumerate(row.record.nodes):
        if node.state is NodeState.RUNNING and ranks_of(task, index):
            yield index


def shown(told: dict[str, Any]) -> dict[str, Any]:
    """As people are told of it: by groups of the same stack, the largest first."""
    processes = [stacks.load(each) for each in told["processes"]]
    groups = [
        {
            "ranks": each.ranks,
            "count": len(each.processes),
            "pids": [[p.rank, p.node, p.pid] for p in each.processes],
            "own": each.processes[0].parent is None,
            "waits": stacks.waits(each.frames) or None,
            "doing": stacks.doing(each.frames),
            "name": each.processes[0].name,
            "why": each.processes[0].why or None,
            "stack": pack(each.frames),
            "threads": pack(each.processes[0].threads),
        }
        for each in stacks.group(processes)
    ]
    found = stacks.odd(processes)
    odd = None
    if found is not None:
        one = found[0]
        odd = {"rank": one.rank, "node": one.node, "pid": one.pid, "at": stacks.at(one)}
    return {**told, "processes": pack(processes), "groups": groups, "odd": odd}
