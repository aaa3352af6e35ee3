"""The one background thread: it wakes, goes on after a failure, and ends."""

from __future__ import annotations

import queue

import pytest

from allranks.server.loop.subscriptions import Change, Subscriptions
from allranks.server.worker import Worker


class Chore(Worker):
    def __init__(self, *outcomes: float | Exception | None, **options: float | None) -> None:
        super().__init__("chore", retry=0.01, **options)
        self.outcomes = [*outcomes]
        self.looks: queue.SimpleQueue[set[str]] = queue.SimpleQueue()

    def look(self, names: set[str]) -> float | None:
        self.looks.put(names)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def finish(self) -> None:
        self.looks.put({"finish"})


def test_it_looks_when_it_is_woken_when_time_is_over_and_last_finishes():
    chore = Chore(0.01, None)
    chore.start()
    assert [chore.looks.get(timeout=20) for _ in range(2)] == [set(), set()]
    chore.wake("a")
    assert chore.looks.get(timeout=20) == {"a"}
    chore.stop()
    assert chore.looks.get(timeout=20) == {"finish"}
    assert chore.looks.empty()


def test_what_woke_it_meanwhile_is_one_look():
    chore = Chore(first=None)
    for name in ("a", "b", "a"):
        chore.wake(name)
    chore.start()
    assert chore.looks.get(timeout=20) == {"a", "b"}
    chore.stop()
    chore.stop()


@pytest.mark.parametrize("failure", [OSError("the disk is full"), ValueError("a bug")], ids=str)
def test_after_a_failure_it_looks_again(failure: Exception, caplog: pytest.LogCaptureFixture):
    chore = Chore(failure, None)
    chore.start()
    assert [chore.looks.get(timeout=20) for _ in range(2)] == [set(), set()]
    chore.stop()
    assert "chore failed, retrying in 0.01 s" in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(failure, ValueError)


def test_all_who_subscribe_are_called_and_one_may_say_no():
    subscriptions, called = Subscriptions(), []
    assert subscriptions.publish(Change.ROUTE)
    subscriptions.subscribe(Change.ROUTE, called.append)
    subscriptions.subscribe(Change.ROUTE, lambda name: name != "b")
    assert [subscriptions.publish(Change.ROUTE, name) for name in ("a", "b")] == [True, False]
    assert subscriptions.publish(Change.STOP)
    assert called == ["a", "b"]
