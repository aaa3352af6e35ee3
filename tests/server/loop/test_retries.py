"""Steps that an engine cannot perform for a while."""

from __future__ import annotations

import itertools
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import Handle
from allranks.errors import EngineError
from allranks.server.loop import retries
from allranks.server.loop.retries import LONGEST, Retries
from tests.server.serving import FAKE, Target, served
from tests.support import until


def test_pauses_double_up_to_a_longest(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(retries.time, "monotonic", lambda: clock.now)
    tried, pauses = Retries(0.5), []
    assert tried.due("fox.1", "submitted")
    for _ in range(9):
        tried.failed("fox.1", "submitted", EngineError("no"))
        before = clock.now
        while not tried.due("fox.1", "submitted"):
            clock.now += 0.25
        pauses.append(clock.now - before)
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST, LONGEST, LONGEST]
    tried.failed("fox.1", "submitted", EngineError("no"))
    assert tried.due("hen.1", "submitted")
    assert tried.due("fox.1", "stopping")
    tried.forget("fox.1")
    assert tried.due("fox.1", "submitted")


def test_a_reason_is_logged_once(caplog: pytest.LogCaptureFixture):
    tried = Retries(0.0)
    for reason in ("quota", "quota", "network", "network"):
        tried.failed("fox.1", "submitted", EngineError(reason))
    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == [
        "quota",
        "network",
    ]
    for _ in range(2):
        tried.failed("fox.1", "clean-up", KeyError("defect"))
    assert [bool(each.exc_info) for each in caplog.records] == [False, False, True, True]


def test_what_must_wait_for_a_moment_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(retries.time, "monotonic", lambda: clock.now)
    tried = Retries(0.5)
    for _ in range(3):
        tried.postpone("fox.1", "submitted")
        assert not tried.due("fox.1", "submitted")
        clock.now += 0.5
        assert tried.due("fox.1", "submitted")
    assert not caplog.records


class Full(Target):
    """A cluster whose quota is used up for the first five tries."""

    tries: list[float]

    def submit(self, gang: Gang) -> Handle:
        self.tries.append(time.monotonic())
        if len(self.tries) <= 5:
            raise EngineError("the quota is used up")
        return super().submit(gang)


@pytest.mark.medium
def test_a_submit_that_fails_is_tried_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    engine = Full(None, {})  # type: ignore[arg-type]
    engine.tries = []
    with (
        caplog.at_level(logging.WARNING, "allranks.loop"),
        served(tmp_path / "h", FAKE._replace(make=lambda *_: engine), tick=0.02) as server,
    ):
        server.submit("j")

        def shown() -> Any:
            return server.people.get("/api/v1/jobs/j").json()

        until(lambda: "the quota is used up" in str(shown()))
        until(lambda: shown()["status"] != "NotStarted")
    gaps = [later - before for before, later in itertools.pairwise(engine.tries)]
    assert all(gap >= 0.02 * 2**n for n, gap in enumerate(gaps)), gaps
    assert len(gaps) == 5
    assert caplog.text.count("the quota is used up") == 1
