"""Profiles as agents send them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allranks.server.loop.profiles import Profiles
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Home

GOOD = {"rank": 0, "pid": 1, "answer": None, "why": ""}


@pytest.mark.parametrize("odd", [{"rank": "/../x"}, {"rank": True}, {"answer": []}, {"why": 1}])
def test_an_answer_of_another_shape_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    profiles = Profiles(Home(tmp_path), Wakeups())
    profiles.receive("j", 0, 1, {"last": False, "rank": GOOD})
    with pytest.raises(TypeError):
        profiles.receive("j", 0, 1, {"last": False, "rank": {**GOOD, **odd}})
