"""Azure ML's own client is the judge of what a pipeline file may say."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from allranks import AllranksError, load_job
from allranks.sdk.submit.prepare import prepare
from allranks.spec.pipeline.component import with_components
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import steps_of
from tests.spec.azure_pipelines import ACCEPTED, FILES, REFUSED, SOONER, SUPERSETS
from tests.spec.test_azure import judged


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Else a shim of pyenv is the current Python, and it is asked three times a submission.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def somewhere(reference: str, where: str) -> Mapping[str, Any]:
    """A registered component."""
    return {"command": "echo ${{inputs.x}}", "inputs": {"x": {"type": "integer"}}}


def steps(folder: Path, text: str) -> list[str]:
    """The steps of a file, read and checked as at its submission."""
    (folder / "job.yml").write_text(text)
    job = load_job(folder / "job.yml")
    assert load_job(job.to_yaml()) == job
    submission, _ = prepare(job.to_dict(), folder)
    return [*steps_of(PipelineJob.parse(with_components(submission["spec"], somewhere)))]


@pytest.mark.parametrize("case", [*ACCEPTED, *SUPERSETS])
def test_taken(folder: Path, case: str) -> None:
    assert steps(folder, {**ACCEPTED, **SUPERSETS}[case])


@pytest.mark.parametrize("case", [*REFUSED, *SOONER])
def test_refused(folder: Path, case: str) -> None:
    with pytest.raises(AllranksError) as caught:
        steps(folder, {**REFUSED, **SOONER}[case])
    assert caught.value.hint


@pytest.mark.frameworks
def test_azures_client_says_the_same(folder: Path) -> None:
    said = judged(folder, {**ACCEPTED, **REFUSED, **SOONER, **SUPERSETS})
    assert {case for case in said if "job" in said[case]} == {*ACCEPTED, *SOONER}
