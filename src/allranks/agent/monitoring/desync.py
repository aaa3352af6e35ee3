"""Whether ranks that failed in a collective disagreed on it: what they left, and what others say.

A rank that ends by such an error leaves its last collectives in the attempt's folder
(`inside/allranks_inspect.py`). The other ranks of the node are asked before they are ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import folder_trees
from allranks.agent.monitoring.inspection import ask_all
from allranks.agent.processes import rank_messages
from allranks.agent.processes.rank_processes import families
from allranks.core.diagnosis import collectives
from allranks.core.diagnosis.collectives import MISMATCHES, Kind

if TYPE_CHECKING:
    from allranks.api.jobs import ErrorCollective

# Seconds to wait for the other ranks: an error of one soon becomes one of its peers.
_PATIENCE = 0.5
_LEFT = "collectives-{}.json"


class Disagreement(NamedTuple):
    """As text for people and as data; both empty where nothing is known."""

    text: str = ""
    collective: ErrorCollective | None = None


def explain(
    folder: Path,
    rank: int,
    last_lines: Sequence[str] | None,
    roots: Mapping[int, int],
    ended: Set[int],
) -> Disagreement:
    """In what the ranks disagreed, when ``rank`` had failed in a collective. One that was aborted,
    as gloo's threads do, leaves nothing but its ``last_lines``; these are None for others.
    ``roots`` are the first processes of the ranks that are there, and ``ended`` those of this node
    that are not; of other nodes' ranks nothing is known."""
    is_aborted = last_lines is not None
    if not is_aborted and not (folder / _LEFT.format(rank)).exists():
        return Disagreement()
    until = time.monotonic() + _PATIENCE
    answers: dict[int, Any] = {}
    while True:
        _ask(folder, roots, answers)
        if roots.keys() <= answers.keys() or time.monotonic() > until:
            break
        time.sleep(0.02)
    recorded = collectives.by_rank(answers.values())
    finding = collectives.compare(recorded, ended - recorded.keys())
    text = collectives.of_aborted(last_lines or (), finding)
    kinds = MISMATCHES if is_aborted else (*MISMATCHES, Kind.GROUPS, Kind.GONE, Kind.NOT_CALLED)
    if finding is None or not (text or finding.kind in kinds):
        return Disagreement(text)
    if finding.kind in kinds:
        compared = collectives.sentence(finding, _time_of_day)
        text = f"{text}; {compared}" if text else compared
    return Disagreement(text, collectives.facts(finding))


def _ask(folder: Path, roots: Mapping[int, int], answers: dict[int, Any]) -> None:
    """Add what ranks have left, which counts more than what they say, and what those say that are
    there."""
    trees = families(roots.values())
    pids = {pid: rank for rank, root in roots.items() for pid in trees.get(root, [root])}
    for pid, answer in ask_all(pids, {"do": "collectives"}, _PATIENCE / 2).items():
        answers[pids[pid]] = answer
    for path in folder.glob(_LEFT.format("*")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            # Any process of the job may write there.
            answer = rank_messages.load(folder_trees.read_file(path))
            answers[int(answer["rank"])] = answer


def _time_of_day(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
