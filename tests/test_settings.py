"""Which folder is taken as a home."""

import os
from pathlib import Path

import pytest

from allranks import settings
from allranks.errors import UsageError


@pytest.mark.parametrize(
    ("owner", "mode", "uid", "is_home"),
    [
        (1000, 0o777, 1000, True),  # narrowed before it is used
        (1000, 0o700, 0, True),
        (1000, 0o775, 0, True),  # of a container's user, perhaps
        (1000, 0o777, 0, False),
        (1000, 0o777, 2000, False),
        (1000, 0o775, 2000, False),
        (0, 0o1777, 2000, True),  # a volume's
    ],
)
def test_a_home_is_no_folder_that_another_user_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, uid: int, is_home: bool
) -> None:
    there = os.stat_result((0o40000 | mode, 1, 1, 1, owner, 1, 0, 0, 0, 0))
    answer: settings.Home | UsageError
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: there)
        patched.setattr(os, "getuid", lambda: uid)
        try:
            answer = settings.home({"ALLRANKS_HOME": str(tmp_path)})
        except UsageError as error:
            answer = error
    assert isinstance(answer, settings.Home) == is_home


def test_a_home_that_is_not_there_yet_is_one(tmp_path: Path) -> None:
    assert settings.home({"ALLRANKS_HOME": str(tmp_path / "x")}).root == tmp_path / "x"


@pytest.mark.parametrize("text", ["", "null", "[1]", "[" * 100_000, '{"a', "\udcff"])
def test_a_damaged_file_of_a_home_is_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert settings.read_json(file, dict) == {}
    assert settings.read_json(tmp_path / "none", dict) == {}
    file.write_text('{"port": 1}')
    assert settings.read_json(file, dict) == {"port": 1}
