"""The error of a job, as `job show` prints it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.core.attempt_end import Failure
from allranks.core.lifecycle import decide
from allranks.core.plan import Gang
from allranks.engines.base import Handle
from allranks.errors import Refused
from allranks.server.ending.failure import _hint, _sentence
from allranks.statuses import VERDICTS, Reason
from tests.server.serving import FAKE, Target, served
from tests.support import until


class Picky(Target):
    """A cluster that refuses what it had admitted: it looks closer when it gets the gang."""

    hint: str | None

    def submit(self, gang: Gang) -> Handle:
        raise Refused("labels: Invalid value: 'a b'", hint=self.hint)


@pytest.mark.medium
@pytest.mark.parametrize("hint", ["change the label", None])
def test_a_refusal_has_the_engines_hint(tmp_path: Path, hint: str | None):
    engine = Picky(None, {})  # type: ignore[arg-type]
    engine.hint = hint
    with served(tmp_path / "h", FAKE._replace(make=lambda *_: engine), tick=0.02) as server:
        server.submit("j")

        def shown() -> Any:
            return server.people.get("/api/v1/jobs/j").json()

        until(lambda: shown()["status"] == "Failed")
        error = shown()["error"]
    assert error["message"] == "labels: Invalid value: 'a b'"
    if hint:
        assert error["hint"] == hint
    else:
        assert "fewer nodes" in error["hint"]


def test_a_lost_session_is_not_advised_what_dev_does_not_have():
    row: Any = SimpleNamespace(name="dev-a", spec={"session": {}}, parent=None)
    lost = Failure(Reason.NODE_LOST, 0)
    hint = _hint(row, lost, VERDICTS[Reason.NODE_LOST], None)
    assert hint == "its files: allranks job files dev-a; start another one: allranks dev"


def test_a_preemption_is_told_in_the_engines_words_if_the_agents_had_none():
    record = decide.new(1)._replace(gone=Reason.PREEMPTED, why="Kubernetes: its pod was deleted")
    row: Any = SimpleNamespace(record=record)
    end = Failure(Reason.PREEMPTED, 0)
    said = "the job was preempted"
    assert _sentence(row, end, said) == f"{said}: Kubernetes: its pod was deleted"
    assert _sentence(row, end._replace(message="maintenance"), said) == "maintenance"
    other: Any = SimpleNamespace(record=record._replace(gone=None))
    assert _sentence(other, end, said) == said
