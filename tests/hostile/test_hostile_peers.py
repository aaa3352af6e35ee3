"""Nothing that a lying peer sends is written outside, takes long, or is lost in silence."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.hostile import (
    answers,
    archives,
    backups,
    channels,
    code_chunks,
    copied_tars,
    job_files,
    listings,
    pulled_files,
    requests,
)
from tests.hostile.harness import check

KINDS: dict[str, ModuleType] = {
    "answers": answers,
    "archives": archives,
    "backups": backups,
    "channels": channels,
    "code_chunks": code_chunks,
    "copied_tars": copied_tars,
    "job_files": job_files,
    "listings": listings,
    "pulled_files": pulled_files,
    "requests": requests,
}


@pytest.mark.medium
@pytest.mark.parametrize("name", KINDS)
def test_a_hostile_peer(tmp_path: Path, request: pytest.FixtureRequest, name: str):
    failed = []
    request.addfinalizer(getattr(KINDS[name], "close", lambda: None))
    for number in range(KINDS[name].TRIES):
        root = tmp_path / str(number)
        root.mkdir()
        try:
            check(KINDS[name], name, number, root)
        except BaseException as error:  # each try is shown by its number
            if isinstance(error, KeyboardInterrupt):
                raise
            failed.append(f"{name} {number}: {type(error).__name__}: {str(error)[:300]}")
        shutil.rmtree(root, ignore_errors=True)
    assert not failed, "\n".join(failed)
