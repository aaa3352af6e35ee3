"""Profiles as agents send them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.errors import Conflict
from allranks.server.loop import profiles as loop_profiles
from allranks.server.loop.profiles import Profiles, _read
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Home

GOOD = {"rank": 0, "pid": 1, "answer": None, "why": ""}


@pytest.mark.parametrize("odd", [{"rank": "/../x"}, {"rank": True}, {"answer": []}, {"why": 1}])
def test_an_answer_of_another_shape_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    profiles = Profiles(Home(tmp_path), Wakeups())
    profiles.receive("j", 0, 1, {"last": False, "rank": GOOD})
    with pytest.raises(TypeError):
        profiles.receive("j", 0, 1, {"last": False, "rank": {**GOOD, **odd}})


@pytest.mark.parametrize(
    "odd", [{"resident": [1]}, {"resident": None}, {"gpus": [{}]}, {"gpus": 1}]
)
def test_memory_of_another_shape_is_missing(odd: dict[str, Any]) -> None:
    memory = {"lines": [["a.py", 1, 2, 3]], "resident": [4, 5], "gpus": [], "more": [] * 9}
    ranks = [
        (0, {**GOOD, "answer": {"memory": memory}}),
        (1, {**GOOD, "rank": 1, "answer": {"memory": {**memory, **odd}}}),
    ]
    gathered: Any = SimpleNamespace(ranks=ranks, awaited=set())
    _, missing, kept = _read(gathered)
    assert kept == [{"rank": 0, "lines": [("a.py", 1, 2, 3)], "resident": [4, 5]}]
    assert [one["rank"] for one in missing] == [1]


@pytest.mark.timeout(20)
def test_a_record_with_odd_profiles_is_passed_over(tmp_path: Path) -> None:
    good = '{"at": 1}'
    for number, text in enumerate((good, "[" * 60_000, "[]", '{"at": "x"}', None)):
        folder = tmp_path / f"jobs/j/attempts/1/system_logs/profile-{number}"
        folder.mkdir(parents=True)
        if text is None:
            os.mkfifo(folder / "profile.json")
        else:
            (folder / "profile.json").write_text(text)
    assert Profiles(Home(tmp_path), Wakeups()).saved("j") == {"at": 1}


def test_a_profile_that_is_too_large_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_profiles, "_MOST", 30)
    profiles = Profiles(Home(tmp_path), Wakeups())
    for number, more in ((2000, ""), (1000, "x" * 30)):
        folder = tmp_path / f"jobs/j/attempts/1/system_logs/profile-{number}"
        folder.mkdir(parents=True)
        (folder / "profile.json").write_text(json.dumps({"at": number / 1000, "more": more}))
    newest = {"at": 2.0, "more": ""}
    assert profiles.saved("j") == newest, "an older one does not keep it from being shown"
    folder.rename(folder.with_name("profile-3000"))
    with pytest.raises(Conflict, match="the newest profile of j is larger"):
        profiles.saved("j")
