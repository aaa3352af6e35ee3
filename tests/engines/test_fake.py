"""The fake engine's misfortunes, each as a gang's options name it."""

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import Handle
from allranks.engines.fake import FakeEngine
from allranks.errors import Refused
from allranks.statuses import GangState as G


def told(options, polls):
    engine = FakeEngine()
    engine.submit(Gang("j.1", 2, ("agent",), options=options))
    return [engine.poll([Handle("j.1")])["j.1"] for _ in range(polls)]


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({}, [G.UP, G.UP]),
        ({"start_after": 2}, [G.QUEUED, G.QUEUED, G.UP]),
        ({"start_after": 1, "provision_after": 2}, [G.QUEUED, G.PROVISIONING, G.UP]),
        ({"does_not_answer": 2}, [G.UNKNOWN, G.UNKNOWN, G.UP]),
        ({"preempt_at": 1}, [G.UP, G.GONE]),
    ],
)
def test_misfortunes(options, states):
    assert [seen.state for seen in told(options, len(states))] == states


def test_a_lost_node():
    assert [seen.lost for seen in told({"lose_node": 1, "at": 1}, 3)] == [(), (1,), (1,)]


def test_refused():
    with pytest.raises(Refused, match="no such partition"):
        FakeEngine().submit(Gang("j.1", 1, (), options={"refuse": "no such partition"}))
