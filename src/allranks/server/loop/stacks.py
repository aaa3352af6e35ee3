"""The stacks of a live job's processes: requested from its agents, gathered and saved.

A request is a number that agents find beside their orders until it expires. Answers are kept in
memory until all nodes have answered, and then saved as a file of the job's record.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from allranks import folder_trees
from allranks.core.diagnosis import collectives, stacks
from allranks.core.diagnosis.stacks import Process
from allranks.core.distributions.topology import ranks_of
from allranks.core.packing import pack
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Home
from allranks.statuses import NodeState
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import (
        Collectives,
        GroupedStacks,
        OddProcess,
        SavedStacks,
        StackGroup,
    )

# Seconds to wait for the agents' answers. Agents with a mailbox poll for orders less often.
PATIENCE = 5.0
# The most bytes of one node's answer; the stacks of a rank take some kilobytes.
MOST = 16 << 20
# The most bytes of all nodes' answers in the record.
_MOST_SAVED = 256 << 20
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError)


class Answers:
    """The answers to one request."""

    def __init__(self, number: int, row: JobRow) -> None:
        self.number, self.launch, self.attempt = number, row.record.launch, row.record.attempt
        self.at = time.time()
        self.until = time.monotonic() + PATIENCE
        self.awaited = set(running(row))
        self.stacks: dict[int, list[Process]] = {}

    @property
    def missing(self) -> list[int]:
        """Nodes that have not answered."""
        return sorted(self.awaited - self.stacks.keys())

    @property
    def over(self) -> bool:
        return not self.missing or time.monotonic() > self.until

    @property
    def processes(self) -> list[Process]:
        return [stack for node in sorted(self.stacks) for stack in self.stacks[node]]


class Stacks:
    """The newest request of each job. Thread-safe."""

    def __init__(self, home: Home, wakeups: Wakeups) -> None:
        self._home, self._wakeups = home, wakeups
        self._requests: dict[str, Answers] = {}
        self._lock = threading.Lock()

    def request(self, row: JobRow) -> Answers:
        """Request the stacks of every node that runs ranks; joins a request that is pending."""
        with self._lock:
            last = self._requests.get(row.name)
            if last is not None and not last.over and last.attempt == row.record.attempt:
                return last
            number = max(int(time.time() * 1000), last.number + 1 if last else 0)
            self._requests[row.name] = answers = Answers(number, row)
        self._wakeups.notify(row.name)
        return answers

    def number(self, row: JobRow) -> int:
        """The request that the job's agents have to answer now, 0 for none."""
        last = self._requests.get(row.name)
        if last is None or last.over or last.attempt != row.record.attempt:
            return 0
        return last.number

    def receive(self, name: str, node: int, number: int, answer: Any) -> None:
        """Take a node's answer. Raises ValueError, TypeError or KeyError if it is malformed."""
        processes = [stacks.load(each)._replace(node=node) for each in answer]
        with self._lock:
            last = self._requests.get(name)
            if last is not None and last.number == number:
                last.stacks[node] = processes
        self._wakeups.notify(name)

    def forget(self, name: str) -> None:
        with self._lock:
            self._requests.pop(name, None)

    def save(self, name: str, answers: Answers, stem: str = "stacks") -> SavedStacks:
        """Write the answers into the record, replacing earlier ones of the same attempt."""
        data: SavedStacks = {
            "attempt": answers.attempt,
            "at": answers.at,
            "missing": answers.missing,
            "processes": pack(answers.processes),
        }
        folder = self._home.jobs / name / "attempts" / str(answers.attempt) / "system_logs"
        with folder_trees.replace_file(folder / f"{stem}.json", self._home.jobs) as file:
            file.write(json.dumps(data).encode())
        return data

    def saved(self, name: str) -> GroupedStacks | None:
        """The newest stacks in the record as the API shows them, or None."""
        newest: GroupedStacks | None = None
        record = self._home.jobs / name
        for path in record.glob("attempts/*/system_logs/*stacks.json"):
            # A job can write to its record.
            with contextlib.suppress(OSError, RecursionError, *_MALFORMED):
                data = json.loads(folder_trees.read_file(path, _MOST_SAVED, record))
                grouped = shown(data | {"at": float(data["at"])})
                if newest is None or grouped["at"] > newest["at"]:
                    newest = grouped
        return newest


def running(row: JobRow) -> Iterable[int]:
    """The nodes that run ranks."""
    task = row.plan.task
    for index, node in enumerate(row.record.nodes):
        if node.state is NodeState.RUNNING and ranks_of(task, index):
            yield index


def shown(data: SavedStacks) -> GroupedStacks:
    """Saved stacks as the API shows them: grouped by equal stacks, the largest group first."""
    processes = [stacks.load(each) for each in data["processes"]]
    groups: list[StackGroup] = [
        {
            "ranks": each.ranks,
            "count": len(each.processes),
            "pids": [(p.rank, p.node, p.pid) for p in each.processes],
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
    outliers = stacks.odd(processes)
    odd: OddProcess | None = None
    if outliers is not None:
        one = outliers[0]
        odd = {"rank": one.rank, "node": one.node, "pid": one.pid, "at": stacks.at(one)}
    recorded = _collectives(processes)
    plain = [process._replace(collectives=None) for process in processes]
    return {
        **data,
        "processes": pack(plain),
        "groups": groups,
        "odd": odd,
        "collectives": recorded,
    }


def _collectives(processes: list[Process]) -> Collectives | None:
    """What the ranks' recorders say, compared; None if there is no recorder."""
    recorded = collectives.of_processes(processes)
    finding = collectives.examine(processes)
    if finding is None:
        return None
    calls: list[Any] = [
        {"rank": rank, **pack(entry)}
        for rank in sorted(recorded)
        for entry in collectives.last(recorded[rank])
    ]
    return {
        "kind": finding.kind.value,
        "message": collectives.sentence(finding, time_of_day, processes),
        "ranks": list(finding.ranks),
        "waiting": list(finding.waiting),
        "since": finding.since or None,
        "last": calls,
    }


def time_of_day(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
