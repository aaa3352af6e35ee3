"""Report when the ranks of a node have called their collectives, and what may slow them down.

Ranks are asked through the thread that answers in them (`inside/allranks_inspect.py`): three times
a minute, four times as often while somebody looks at the job. All nodes ask for what was before the
same moment, so that their answers overlap.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import clock
from allranks.agent.monitoring import strain
from allranks.agent.monitoring.inspection import Question
from allranks.agent.monitoring.process_usage import Rank
from allranks.agent.processes.rank_processes import Members
from allranks.agent.transport.link import Link

if TYPE_CHECKING:
    from allranks.agent.monitoring.monitor import Sample
    from allranks.api.agents import PaceReport, RankPace

# While somebody looks, the period is so many times shorter.
_OFTEN = 4
# Seconds to wait for the answers, as a share of the period.
_PATIENCE = 0.25
# The most collectives of a rank, and of all ranks together.
_MOST, _OF_ALL, _LEAST = 2000, 32768, 64


class _Answer(NamedTuple):
    """What a rank of torch answered (`pace` in `inside/allranks_inspect.py`), in a process of the
    job's rank ``job_rank``."""

    rank: int
    job_rank: int
    groups: list[tuple[str, str, list[int]]]
    calls: list[tuple[str, int, float]]


class Pace:
    """``look`` is called once a second. ``world`` is the number of the job's ranks."""

    def __init__(self, link: Link, world: int, period: float) -> None:
        self._link, self._period = link, period
        self._most = min(_MOST, max(_LEAST, _OF_ALL // world))
        self._asked: dict[int, tuple[int, Question]] = {}
        self._answers: dict[int, _Answer] = {}
        self._until = self._at = _now()
        self._strain = strain.Strain()
        self._load: list[float] = []

    def look(self, members: Members, ranks: Mapping[int, Rank], sample: Sample) -> None:
        self._strain.count(ranks)
        if {("node_cpu", None, None), ("cpu", None, None)} <= sample.keys():
            more = sample["node_cpu", None, None] - sample["cpu", None, None]
            self._load.append(max(0.0, more) / 100 * (os.cpu_count() or 1))
        now = _now()
        if self._asked:
            self._read()
            if not self._asked or now - self._until > self._period * _PATIENCE:
                self._report(members)
        period = self._period / _OFTEN if self._link.watched else self._period
        if not self._asked and now // period > self._until // period:
            self._ask(members, now // period * period)

    def _ask(self, members: Members, until: float) -> None:
        self._until, self._answers = until, {}
        question = {"do": "pace", "until": until, "most": self._most, "keep": self._period}
        for rank, pids in members.ranks.items():
            for pid in pids:
                if (sent := Question.ask(pid, question)) is not None:
                    self._asked[pid] = (rank, sent)
        if self._asked and self._link.suspects:
            self._strain.begin_search(members.job)

    def _read(self) -> None:
        for pid, (rank, question) in [*self._asked.items()]:
            answer = None
            with contextlib.suppress(OSError, ValueError):  # it is malformed: asked again later
                answer = question.answer()
            if answer is not None:
                question.close()
                del self._asked[pid]
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self._answers[pid] = _checked(answer, rank)

    def _report(self, members: Members) -> None:
        for _, question in self._asked.values():
            question.close()
        self._asked.clear()
        groups: dict[tuple[str, tuple[int, ...]], int] = {}
        ranks: dict[str, RankPace] = {}
        alone = True  # or there are several programs that have nothing to do with one another
        for answer in self._answers.values():
            of_name: dict[str, int] = {}
            for name, _, several in answer.groups:
                of_name[name] = groups.setdefault((name, tuple(several)), len(groups))
            alone &= str(answer.rank) not in ranks
            ranks[str(answer.rank)] = {
                "job_rank": answer.job_rank,
                "calls": [
                    (of_name[name], number, since)
                    for name, number, since in answer.calls
                    if name in of_name
                ],
            }
        now = _now()
        host = self._strain.host(now - self._at)
        if self._load:
            host["others"] = sum(self._load) / len(self._load)
        report: PaceReport = {
            "at": self._until,
            "now": clock.now(),
            "period": now - self._at,
            "groups": [(name, [*several]) for name, several in groups],
            "ranks": ranks,
            "strain": {
                str(rank): signs for rank, signs in self._strain.ranks(members, now - self._at)
            },
            "host": host,
        }
        self._at = now
        self._load.clear()
        if ranks and alone:
            self._link.pace = report


def _checked(answer: Mapping[str, Any], job_rank: int) -> _Answer:
    """Raises KeyError, TypeError and ValueError for what no rank of ours answers."""
    groups = [(str(name), count, [*map(int, ranks)]) for name, count, ranks in answer["groups"]]
    calls = [(str(name), int(number), float(since)) for name, number, since in answer["calls"]]
    return _Answer(int(answer["rank"]), job_rank, groups, calls)


def _now() -> float:
    """By the machine's clock, which those of other hosts are set by."""
    return time.time()
