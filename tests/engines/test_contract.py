"""What every engine promises, held against each of them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from allranks.engines.base import MARKER, Engine, Handle
from allranks.engines.fake import FakeEngine
from allranks.engines.local import Capacity, LocalEngine
from allranks.engines.sweep import marked
from allranks.errors import Refused
from allranks.plan.plan import Gang
from allranks.states import GangState
from tests.support import until


def processes(engine: Engine, key: str) -> list[int]:
    """Those of the gang; the fake has none."""
    return marked(engine.mark(key), Path("/nowhere")) if isinstance(engine, LocalEngine) else []


class Case(NamedTuple):
    """An engine with room for four nodes, and a gang for it whose agents stay."""

    engine: Engine
    gang: Gang
    again: Callable[[], Engine]


def sleeper(key: str) -> Gang:
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    return Gang(key, 2, argv, env={MARKER: key})


@pytest.fixture(params=["local", "fake"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    key = f"{tmp_path.name}.1"
    if request.param == "fake":
        fake = FakeEngine(nodes=4)
        yield Case(fake, sleeper(key), lambda: fake)
        return

    def local() -> LocalEngine:
        return LocalEngine(tmp_path / "engine", tmp_path / "nodes", Capacity(4, 2, 2.0, 1 << 30))

    engine = local()
    yield Case(engine, sleeper(key), local)
    engine.stop(Handle(key))
    assert processes(engine, key) == []


def state(engine: Engine, key: str) -> GangState:
    return engine.poll([Handle(key)])[key].state


def test_a_submitted_gang_is_seen(case):
    handle = case.engine.submit(case.gang)
    assert handle.key == case.gang.key
    assert state(case.engine, handle.key) in (
        GangState.QUEUED,
        GangState.PROVISIONING,
        GangState.UP,
    )
    until(lambda: state(case.engine, handle.key) is GangState.UP)


def test_the_same_key_twice_is_one_gang(case):
    first = case.engine.submit(case.gang)
    until(lambda: state(case.engine, first.key) is GangState.UP)
    before = processes(case.engine, first.key)
    assert case.engine.submit(case.gang).key == first.key
    assert processes(case.engine, first.key) == before


def test_stop_makes_it_gone_and_twice_is_once(case):
    handle = case.engine.submit(case.gang)
    case.engine.stop(handle)
    assert state(case.engine, handle.key) is GangState.GONE
    assert processes(case.engine, handle.key) == []
    case.engine.stop(handle)


def test_an_unknown_key_is_gone_and_there_is_nothing_to_stop(case):
    case.engine.stop(Handle("never.1"))
    assert state(case.engine, "never.1") is GangState.GONE


def test_it_is_stopped_by_our_key_when_the_engines_was_never_learnt(case):
    case.engine.submit(case.gang)
    case.engine.stop(Handle(case.gang.key, ref=""))
    assert state(case.engine, case.gang.key) is GangState.GONE


def test_one_question_for_all(case):
    case.engine.submit(case.gang)
    told = case.engine.poll([Handle(case.gang.key), Handle("never.1")])
    assert set(told) == {case.gang.key, "never.1"}
    assert case.engine.poll([]) == {}


def test_what_can_never_fit_is_refused_before_and_at_submit(case):
    large = case.gang._replace(nodes=5)
    for ask in (case.engine.admit, case.engine.submit):
        with pytest.raises(Refused) as caught:
            ask(large)
        assert "5 nodes" in caught.value.message
        assert caught.value.hint
    assert state(case.engine, large.key) is GangState.GONE


def test_what_is_rendered_shows_no_secret(case):
    gang = case.gang._replace(env={**case.gang.env, "ALLRANKS_AGENT_TOKEN": "s3cret"})
    text = case.engine.render(gang)
    assert "s3cret" not in text
    assert text == case.engine.render(gang)


def test_a_successor_finds_what_was_started(case):
    case.engine.submit(case.gang)
    until(lambda: state(case.engine, case.gang.key) is GangState.UP)
    successor = case.again()
    assert state(successor, case.gang.key) is GangState.UP
    assert successor.submit(case.gang).key == case.gang.key
    assert len(processes(case.engine, case.gang.key)) in (0, 2)
    successor.stop(Handle(case.gang.key))
    assert state(successor, case.gang.key) is GangState.GONE
