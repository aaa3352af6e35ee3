"""When launches that keep nodes start and end: every state of small sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from allranks.core.parents.kept_nodes import Launch, Step, next_step

QUEUED, FREE = Launch("queued"), Launch("free", runs=True)
IDLE = FREE._replace(name="idle", idle=True)
BUSY, ENDS = Launch("busy", runs=True, busy=True), Launch("ends", runs=True, ends=True)


@pytest.mark.parametrize(
    ("launches", "waiting", "to_come", "step"),
    [
        ((), 0, 12, None),
        ((), 1, 11, Step("start")),
        ((QUEUED,), 1, 11, None),
        ((FREE,), 1, 0, None),
        ((BUSY, QUEUED), 2, 0, Step("start")),
        ((ENDS,), 1, 0, Step("start")),
        ((BUSY, FREE), 0, 1, None),
        ((BUSY, FREE), 0, 0, Step("end", "free")),
        ((FREE, QUEUED), 1, 0, Step("end", "queued")),
        ((BUSY, ENDS), 0, 0, None),
        ((BUSY, IDLE), 0, 2, Step("end", "idle")),
        ((FREE, IDLE), 0, 2, Step("end", "idle")),
        ((IDLE,), 1, 2, None),
    ],
)
def test_as_many_launches_as_children_that_run_or_wait(
    launches: tuple[Launch, ...], waiting: int, to_come: int, step: Step | None
):
    assert next_step(launches, waiting, to_come) == step


class State(NamedTuple):
    """``queued``, ``free`` and ``busy`` launches, and the children as ``next_step`` counts them."""

    queued: int = 0
    free: int = 0
    busy: int = 0
    waiting: int = 0
    to_come: int = 4

    def launches(self) -> list[Launch]:
        return [QUEUED] * self.queued + [FREE] * self.free + [BUSY] * self.busy


AT_ONCE = 2


def events(state: State) -> Iterator[State]:
    """What may happen by itself: a child is drawn, gets a launch or ends; a launch gets its nodes,
    or is lost with what it runs."""
    queued, free, busy, waiting, to_come = state
    if to_come and waiting + busy < AT_ONCE:
        yield state._replace(waiting=waiting + 1, to_come=to_come - 1)
    if queued:
        yield state._replace(queued=queued - 1, free=free + 1)
        yield state._replace(queued=queued - 1)
    if free and waiting:
        yield state._replace(free=free - 1, busy=busy + 1, waiting=waiting - 1)
    if free:
        yield state._replace(free=free - 1)
    if busy:
        yield state._replace(busy=busy - 1, free=free + 1)
        yield state._replace(busy=busy - 1, waiting=waiting + 1)


def settled(state: State) -> State:
    """The state after all steps that are due; they come to an end."""
    for _ in range(2 * AT_ONCE):
        step = next_step(state.launches(), state.waiting, state.to_come)
        if step is None:
            return state
        if step.kind == "start":
            state = state._replace(queued=state.queued + 1)
        elif step.name == "queued":
            state = state._replace(queued=state.queued - 1)
        else:
            state = state._replace(free=state.free - 1)
    raise AssertionError(f"no end of steps in {state}")


def test_every_child_gets_a_launch_and_none_is_left():
    seen, todo = set[State](), [settled(State())]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        spare = state.queued + state.free
        assert spare >= state.waiting
        assert spare + state.busy <= AT_ONCE
        if not state.waiting and not state.to_come:
            assert not spare
        todo += [settled(after) for after in events(state)]
    assert len(seen) > 20
