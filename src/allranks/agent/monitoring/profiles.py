"""Profile the ranks of a node, all at once, through the thread that answers in each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from allranks.agent.monitoring import stacks
from allranks.agent.monitoring.inspection import Question, is_listening, stop, wait_for
from allranks.agent.processes.rank_processes import families
from allranks.core.diagnosis.stacks import Frame
from allranks.core.profiles.samples import NO_PYTHON, is_own

if TYPE_CHECKING:
    from allranks.api.agents import ProfileOrder, RankProfile

# Seconds for a process to begin to listen, and for answers after the end of the window. Traces of
# torch are written first.
_LISTEN, _PATIENCE, _WRITING = 2.0, 5.0, 40.0
_RATE = 100.0
_NO_PYTHON_NOW = "its first thread runs no Python that could answer"


def take(node: int, roots: Mapping[int, int], order: ProfileOrder) -> list[RankProfile]:
    """The profile of each rank that the order names, or why there is none."""
    trees = families(roots.values())
    if not roots:  # they run in a container
        trees, roots = stacks.inside(node)
    selected = {
        rank: trees.get(root, [root])
        for rank, root in roots.items()
        if not order["ranks"] or rank in order["ranks"]
    }
    if order.get("stop"):
        for pid in (pid for tree in selected.values() for pid in tree):
            stop(pid)
        return []
    ranks = _listening(selected)
    patience = _WRITING if order["kind"] == "torch" else _PATIENCE
    question = {"do": "profile", "kind": order["kind"], "seconds": order["seconds"]}
    question |= {"rate": _RATE, "keep": patience}
    sent: dict[int, Question | None] = {}
    for pids in ranks.values():
        for pid in pids:
            sent[pid] = Question.ask(pid, question, _LISTEN)
    several = {pid: question for pid, question in sent.items() if question is not None}
    answers = wait_for(several, order["seconds"] + patience, _exists)
    for pid, answer in answers.items():
        _add_lines(pid, answer)
    profiles: list[RankProfile] = []
    for rank, pids in ranks.items():
        for pid in pids:
            why = str(answers.get(pid, {}).get("error", ""))
            if pid not in answers:
                why = _why([pid], "it did not answer in time" if sent[pid] else _NO_PYTHON_NOW)
            profiles.append({"rank": rank, "pid": pid, "answer": answers.get(pid), "why": why})
        if not pids:
            why = _why(selected[rank], NO_PYTHON)
            profiles.append({"rank": rank, "pid": 0, "answer": None, "why": why})
    return profiles


def _add_lines(pid: int, answer: dict[str, Any]) -> None:
    """Add the source line to each of the script's frames: it shows the C code that is called."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        for shown in answer.get("frames", ()):
            frame = Frame(*shown)
            if is_own(frame):
                shown.append(stacks.with_text(frame, pid).text)


def _listening(trees: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """The processes of each rank that are in a group of torch; else its first Python, which is
    asked to listen."""
    ranks = {rank: [pid for pid in tree if is_listening(pid)] for rank, tree in trees.items()}
    late: list[int] = []
    for rank, tree in trees.items():
        if not ranks[rank]:
            python = next((pid for pid in tree if stacks.ask_to_listen(pid)), None)
            ranks[rank] = [] if python is None else [python]
            late += ranks[rank]
    until = time.monotonic() + _LISTEN
    while not all(map(is_listening, late)) and time.monotonic() < until:
        time.sleep(0.01)
    return ranks


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _why(pids: Iterable[int], otherwise: str) -> str:
    """Why the processes of a rank gave no profile."""
    states = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            states.add(stacks.state(pid))
    if states & {"T", "t"}:
        return "it is stopped by a signal"
    return otherwise if states - {"Z", "X"} else "it has ended meanwhile"
