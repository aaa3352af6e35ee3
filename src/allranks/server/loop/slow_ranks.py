"""Notice which rank of a job holds the others, by what agents report of their collectives.

In memory: after a restart of the server it takes a minute again. That somebody was named is an
event.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import clock
from allranks.core.diagnosis import slow_ranks
from allranks.core.diagnosis.slow_causes import causes
from allranks.core.diagnosis.slow_ranks import Call, Group, Slow, Tally
from allranks.core.diagnosis.stacks import numbers
from allranks.events import SLOW_RANK, Event, Kind
from allranks.server.jobs.hosts import with_host
from allranks.server.loop.stacks import running
from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.agents import PaceReport
    from allranks.api.events import SlowRankData

# The periods for which somebody holds the others before it is named, and tallies that are kept.
_PERIODS, _KEPT = 3, 60
# Seconds by which clocks of nodes may differ unnoticed; after which a job without reports is over.
_AGREE, _STALE = 0.01, 900.0
# The most names in one attempt: each is an event.
_MOST = 20


class _Report(NamedTuple):
    """``ahead``: by how many seconds the node's clock is ahead of ours; the most that was seen,
    because a call takes time, too. ``job_ranks`` has the job's rank of each of torch's."""

    at: float
    ahead: float
    groups: frozenset[Group]
    calls: Mapping[int, Mapping[Call, float]]
    job_ranks: Mapping[int, int]
    strain: Mapping[int, Any]
    host: Mapping[str, Any]


class _Watch:
    """The state of one attempt of a job. ``node_tallies`` are of nodes with several ranks, which
    may all be slow together."""

    def __init__(self, launch: int, attempt: int) -> None:
        self.attempt = (launch, attempt)
        self.changed = time.monotonic()
        self.nodes: dict[int, _Report] = {}
        self.judged, self.after = 0.0, dict[Group, int]()
        self.rank_tallies: deque[Tally] = deque(maxlen=_KEPT)
        self.node_tallies: deque[Tally] = deque(maxlen=_KEPT)
        self.slow: tuple[bool, Slow] | None = None
        self.named = 0
        self.job_ranks: Mapping[int, int] = {}


class SlowRanks:
    """``period``: seconds between two reports. Thread-safe."""

    def __init__(self, period: float) -> None:
        self._least = _PERIODS * period
        self._watches: dict[str, _Watch] = {}
        self._lock = threading.Lock()

    def record(self, row: JobRow, node: int, report: PaceReport) -> list[Event]:
        """Take a node's report; what has to be recorded then. Raises ValueError, TypeError,
        KeyError or IndexError if it is malformed."""
        received = _received(report, clock.now())
        attempt = (row.record.launch, row.record.attempt)
        with self._lock:
            self._drop_stale()
            watch = self._watches.get(row.name)
            if watch is None or watch.attempt != attempt:
                watch = self._watches[row.name] = _Watch(*attempt)
            watch.changed = time.monotonic()
            if (before := watch.nodes.get(node)) is not None:
                received = received._replace(ahead=max(before.ahead, received.ahead))
            watch.nodes[node] = received
            expected = set(running(row))
            oldest = min(one.at for one in watch.nodes.values())
            if row.record.status is not JobStatus.RUNNING or not expected <= watch.nodes.keys():
                return []
            if oldest <= watch.judged:
                return []
            begin, watch.judged = watch.judged or oldest - report["period"], oldest
            return self._judge(row, watch, begin)

    def suspects(self, name: str) -> bool:
        """Whether somebody seems to hold the others now."""
        watch = self._watches.get(name)
        return (
            watch is not None
            and bool(watch.rank_tallies)
            and slow_ranks.seems_slow(watch.rank_tallies[-1])
        )

    def waiting(self, name: str) -> dict[int, float]:
        """The share of the time that each rank waits for others, by the newest reports."""
        watch = self._watches.get(name)
        if watch is None or not watch.rank_tallies or not watch.rank_tallies[-1].seconds:
            return {}
        newest, shares = watch.rank_tallies[-1], dict[int, float]()
        for rank, job_rank in watch.job_ranks.items():
            share = min(1.0, newest.waited.get(rank, 0.0) / newest.seconds)
            shares[job_rank] = max(share, shares.get(job_rank, 0.0))
        return shares

    def _drop_stale(self) -> None:
        old = time.monotonic() - _STALE
        for name in [name for name, watch in self._watches.items() if watch.changed < old]:
            del self._watches[name]

    def _judge(self, row: JobRow, watch: _Watch, begin: float) -> list[Event]:
        calls: dict[int, Mapping[Call, float]] = {}
        nodes: dict[int, int] = {}
        job_ranks: dict[int, int] = {}
        aheads = [one.ahead for one in watch.nodes.values()]
        differ = max(aheads) - min(aheads) > _AGREE
        for number, one in watch.nodes.items():
            if calls.keys() & one.calls.keys():
                return []  # several programs that have nothing to do with one another
            job_ranks |= one.job_ranks
            nodes |= dict.fromkeys(one.calls, number)
            calls |= one.calls
            if differ:
                for rank, several in one.calls.items():
                    calls[rank] = {call: at - one.ahead for call, at in several.items()}
        groups = frozenset[Group]().union(*(one.groups for one in watch.nodes.values()))
        new, watch.after = slow_ranks.arrivals(groups, calls, watch.after)
        watch.job_ranks = job_ranks
        places = (row.record.nodes[number].place for number in watch.nodes)
        hosts = len({place.host for place in places if place is not None}) > 1
        watch.rank_tallies.append(slow_ranks.tally(new, begin, watch.judged, hosts))
        if 1 < len(watch.nodes) < len(calls):
            whole = [slow_ranks.of_nodes(arrival, nodes) for arrival in new]
            watch.node_tallies.append(slow_ranks.tally(whole, begin, watch.judged, hosts))
        return self._changes(row, watch, nodes)

    def _changes(self, row: JobRow, watch: _Watch, nodes: Mapping[int, int]) -> list[Event]:
        events = list[Event]()
        if watch.slow is not None:
            is_node, slow = watch.slow
            tallies = watch.node_tallies if is_node else watch.rank_tallies
            if not slow_ranks.is_over([*tallies], slow.member, self._least):
                return []
            text = f"{_subject(watch, is_node, slow.member)} holds the others no longer"
            data = {"message": text, "over": True}
            events.append(_event(row, watch, is_node, slow.member, nodes, data))
            watch.slow = None
        for is_node, tallies in ((False, watch.rank_tallies), (True, watch.node_tallies)):
            if watch.named < _MOST and (newest := slow_ranks.slow([*tallies], self._least)):
                watch.slow = (is_node, newest)
                watch.named += 1
                named = self._data(row, watch, is_node, nodes)
                return [*events, _event(row, watch, is_node, newest.member, nodes, named)]
        return events

    def _data(
        self, row: JobRow, watch: _Watch, is_node: bool, nodes: Mapping[int, int]
    ) -> SlowRankData:
        assert watch.slow is not None
        slow = watch.slow[1]
        ranks = [rank for rank, node in nodes.items() if slow.member == (node if is_node else rank)]
        strain = {
            rank: one.strain[one.job_ranks[rank]]
            for one in watch.nodes.values()
            for rank in one.calls
            if one.job_ranks[rank] in one.strain
        }
        hosts = {number: one.host for number, one in watch.nodes.items()}
        signs = causes(ranks, strain, hosts, nodes)
        job_ranks = sorted({watch.job_ranks[rank] for rank in ranks})
        where = f" (ranks {numbers(job_ranks)})" if is_node else f" on node {nodes[ranks[0]]}"
        message = f"{_subject(watch, is_node, slow.member)}{where} holds the others: they wait "
        message += (
            f"{slow.share:.0%} of the time for it, at {slow.last} of {slow.of} late collectives"
        )
        some = f" --ranks {','.join(map(str, job_ranks[:8]))}"
        look = f"nothing on its host shows why; what it does: allranks job profile {row.name}{some}"
        return {
            "message": with_host(row, message) + "".join(f"; {sign}" for sign in signs),
            "hint": "" if signs else look,
            "share": round(slow.share, 3),
            "since": slow.since,
            "evidence": signs,
            "over": False,
        }


def _subject(watch: _Watch, is_node: bool, member: int) -> str:
    if is_node:
        return f"node {member}"
    job_rank = watch.job_ranks[member]
    # A launcher in the job, such as torchrun, counts ranks of its own.
    return f"rank {member}" if job_rank == member else f"torch's rank {member}, in rank {job_rank}"


def _event(
    row: JobRow,
    watch: _Watch,
    is_node: bool,
    member: int,
    nodes: Mapping[int, int],
    data: Mapping[str, Any],
) -> Event:
    node, rank = member, None
    if not is_node:
        node, rank = nodes.get(member, 0), watch.job_ranks[member]
    return row.event(Kind.NOTE, node=node, rank=rank, data={"about": SLOW_RANK, **data})


def _received(report: PaceReport, now: float) -> _Report:
    groups = [
        Group(f"{name}:{ranks[0]}:{len(ranks)}", tuple(map(int, ranks)))
        for name, ranks in report["groups"]
        if ranks
    ]
    calls: dict[int, dict[Call, float]] = {}
    job_ranks: dict[int, int] = {}
    for rank, own in report["ranks"].items():
        job_ranks[int(rank)] = int(own["job_rank"])
        calls[int(rank)] = {
            (groups[group].name, int(number)): float(at) for group, number, at in own["calls"]
        }
    strain = {int(rank): _numbers(signs) for rank, signs in report["strain"].items()}
    host: dict[str, Any] = _numbers({**report["host"], "busiest": 0})
    host["busiest"] = str(report["host"].get("busiest", ""))[:80]
    ahead = float(report["now"]) - now
    return _Report(float(report["at"]), ahead, frozenset(groups), calls, job_ranks, strain, host)


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in data.items()}
