"""Azure ML's own client is the judge of what a sweep file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks import AllranksError, load_job
from tests.spec.azure_sweeps import ACCEPTED, REFUSED, SOONER, SUPERSETS, whole
from tests.spec.test_azure import folder, judged

__all__ = ["folder"]  # the fixture


@pytest.mark.parametrize("case", [*ACCEPTED, *SUPERSETS])
def test_taken(folder: Path, case: str) -> None:
    (folder / "job.yml").write_text(whole(case))
    job = load_job(folder / "job.yml")
    assert load_job(job.to_yaml()) == job


@pytest.mark.parametrize("case", [*REFUSED, *SOONER])
def test_refused(folder: Path, case: str) -> None:
    (folder / "job.yml").write_text(whole(case))
    with pytest.raises(AllranksError) as caught:
        load_job(folder / "job.yml")
    assert caught.value.hint


@pytest.mark.frameworks
def test_azures_client_says_the_same(folder: Path) -> None:
    every = [*ACCEPTED, *REFUSED, *SOONER, *SUPERSETS]
    said = judged(folder, {case: whole(case) for case in every})
    taken = {case for case in every if "job" in said[case]}
    assert taken == {*ACCEPTED, *SOONER}
