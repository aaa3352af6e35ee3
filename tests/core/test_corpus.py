"""Real failures, and whether they are explained: right, or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest

from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.explain import FailedAttempt, explain
from allranks.core.packing import unpack

CASES = sorted((Path(__file__).parents[1] / "corpus" / "cases").glob("*.json"))


def case(path: Path) -> tuple[Cause, Cause, bool]:
    """What its cause is, what it is found to be, and whether it was made after the patterns."""
    data: dict[str, Any] = json.loads(path.read_text())
    return Cause(data["cause"]), explain(unpack(FailedAttempt, data["known"])).cause, data["held"]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_real_failure_is_explained_rightly_or_not_at_all(path: Path):
    true, found, _ = case(path)
    assert found in (true, Cause.UNKNOWN)


@pytest.mark.parametrize("held", [False, True])
def test_the_corpus_is_large_and_most_of_it_is_explained(held: bool):
    """Also the part that was collected after the patterns were written."""
    told = [(true, found) for true, found, later in map(case, CASES) if later is held]
    assert len(told) >= (50 if held else 60)
    assert len({true for true, _ in told}) >= 20
    right = sum(true is found for true, found in told)
    assert right >= 0.9 * len(told)
