"""What every engine promises. Who tests an engine makes a class of ``Contract`` and a ``case``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import MARKER, Engine, Handle
from allranks.errors import Refused
from allranks.statuses import GangState
from tests.support import until


class Case(NamedTuple):
    """An engine with room for ``room`` nodes, and a gang for it whose agents stay.

    ``again`` makes the engine of a server that takes over, ``processes`` finds those of the gang,
    ``of_node`` to a node. ``seconds``: how long the engine may take for anything.
    """

    engine: Engine
    gang: Gang
    again: Callable[[], Engine]
    processes: Callable[[], Sequence[object]]
    of_node: int = 1
    room: int = 4
    seconds: float = 20.0

    def state(self, key: str | None = None, engine: Engine | None = None) -> GangState:
        key = key or self.gang.key
        return (engine or self.engine).poll([Handle(key)])[key].state

    def start(self) -> Handle:
        """Submit the gang, and wait until it is up."""
        handle = self.engine.submit(self.gang)
        until(lambda: self.state() is GangState.UP, self.seconds)
        until(lambda: len(self.processes()) == self.of_node * self.gang.nodes, self.seconds)
        return handle

    def is_gone(self) -> None:
        until(lambda: self.state() is GangState.GONE, self.seconds)
        until(lambda: not self.processes(), self.seconds)


def sleeper(key: str) -> Gang:
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    return Gang(key, 2, argv, env={MARKER: key})


class Contract:
    def test_a_submitted_gang_is_seen(self, case: Case):
        handle = case.engine.submit(case.gang)
        assert handle.key == case.gang.key
        assert case.state() in (GangState.QUEUED, GangState.PROVISIONING, GangState.UP)
        until(lambda: case.state() is GangState.UP, case.seconds)

    def test_the_same_key_twice_is_one_gang(self, case: Case):
        first = case.start()
        before = case.processes()
        assert case.engine.submit(case.gang) == first
        assert case.processes() == before
        assert case.state() is GangState.UP

    def test_stop_makes_it_gone_and_twice_is_once(self, case: Case):
        handle = case.engine.submit(case.gang)
        case.engine.stop(handle)
        case.is_gone()
        case.engine.stop(handle)
        case.is_gone()

    def test_what_is_up_is_stopped_with_all_its_processes(self, case: Case):
        case.engine.stop(case.start())
        case.is_gone()

    def test_an_unknown_key_is_gone_and_there_is_nothing_to_stop(self, case: Case):
        case.engine.stop(Handle("never.1"))
        assert case.state("never.1") is GangState.GONE

    def test_it_is_stopped_by_our_key_when_the_engines_was_never_learnt(self, case: Case):
        case.engine.submit(case.gang)
        case.engine.stop(Handle(case.gang.key, ref=""))
        case.is_gone()

    def test_one_question_for_all(self, case: Case):
        case.engine.submit(case.gang)
        told = case.engine.poll([Handle(case.gang.key), Handle("never.1")])
        assert set(told) == {case.gang.key, "never.1"}
        assert case.engine.poll([]) == {}

    def test_what_can_never_fit_is_refused_before_and_at_submit(self, case: Case):
        large = case.gang._replace(nodes=case.room + 1)
        for ask in (case.engine.admit, case.engine.submit):
            with pytest.raises(Refused) as caught:
                ask(large)
            assert f"{large.nodes} nodes" in caught.value.message
            assert caught.value.hint
        assert case.state() is GangState.GONE

    def test_what_is_rendered_shows_no_secret(self, case: Case):
        gang = case.gang._replace(env={**case.gang.env, "ALLRANKS_AGENT_TOKEN": "s3cret"})
        text = case.engine.render(gang)
        assert "s3cret" not in text
        assert text == case.engine.render(gang)

    def test_a_successor_finds_what_was_started(self, case: Case):
        handle = case.start()
        before = case.processes()
        successor = case.again()
        assert case.state(engine=successor) is GangState.UP
        assert successor.submit(case.gang) == handle
        assert case.processes() == before
        successor.stop(Handle(handle.key))
        until(lambda: case.state(engine=successor) is GangState.GONE, case.seconds)
        case.is_gone()
