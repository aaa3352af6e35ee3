"""What `job profile` prints of answers, also of those that a job has written."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.cli.job.profile import _read
from allranks.errors import ServerError

RANK = {"rank": 0, "shares": {"input": 0.5}, "starved": 0.0, "last": 0}
VERDICT = {"kind": "input", "message": "m", "gain": 1.5, "hint": "h", "ranks": [RANK]} | {
    "collectives": 0
}
MEMORY = {"rank": 0, "resident": [1, 2], "lines": [["a.py", 1, 2, 3]]}
ANSWER: dict[str, Any] = {"job": "j", "attempt": 1, "at": 1.0, "folder": "/f", "verdict": VERDICT}
ANSWER |= {"missing": [], "operators": [], "memory": [MEMORY]}


def test_a_profile_is_printed_and_compared():
    answer: Any = ANSWER
    lines, notes = _read(answer, answer)
    assert lines[0] == "input: m"
    assert lines[-1] == "  input        50% →  50% (+0%)"
    assert notes[-1] == "/f"


@pytest.mark.parametrize(
    "odd",
    [
        {"verdict": None},
        {"verdict": {}},
        {"verdict": {**VERDICT, "gain": "x"}},
        {"verdict": {**VERDICT, "ranks": [{**RANK, "shares": {"input": []}}]}},
        {"memory": [{**MEMORY, "resident": [1]}]},
        {"memory": [{**MEMORY, "lines": [[]]}]},
        {"operators": [1]},
        {"missing": None},
        {"at": 1e300},
    ],
)
def test_a_damaged_profile_is_an_error(odd: dict[str, Any]):
    answer: Any = {**ANSWER, **odd}
    with pytest.raises(ServerError):
        _read(answer, None)
