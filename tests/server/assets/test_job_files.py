"""The files of a job, by their addresses."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from allranks.core.plan import Container, OutputTask, Task
from allranks.errors import SpecError
from allranks.server.assets import job_files
from allranks.settings import Home
from allranks.spec.fields.azureml_references import ARTIFACTS, OutputOf
from allranks.store.jobs.job_rows import JobRow


@pytest.mark.parametrize("linked", ["outputs/m", "outputs", "."])
@pytest.mark.parametrize("image", [Container("podman", "a"), None])
def test_a_container_leads_to_no_file_that_it_has_not_seen(linked, image, tmp_path: Path):
    """A later job would have it mounted as an input."""
    home = Home(tmp_path / "home")
    record = home.jobs / "j"
    owner = tmp_path / "owner"
    for folder in (record / "artifacts/outputs/m", owner / "m", owner / "outputs/m"):
        folder.mkdir(parents=True)
    outputs = (OutputTask("far", "", uri="s3://b/c"),)
    task = Task("j", "e", "c", record=str(record), container=image, outputs=outputs)
    plan, attempt = SimpleNamespace(task=task), SimpleNamespace(attempt=1)
    row = cast("JobRow", SimpleNamespace(name="j", plan=plan, record=attempt))
    whole = OutputOf("j", ARTIFACTS, "outputs/m")
    assert job_files.find(home, row, whole).path.is_dir()
    assert job_files.find(home, row, OutputOf("j", "far", "")).output == outputs[0]
    (record / "artifacts" / linked).rename(tmp_path / "away")
    (record / "artifacts" / linked).symlink_to(owner)
    if image is None:  # it could have read them
        assert job_files.find(home, row, whole).path.is_dir()
        return
    with pytest.raises(SpecError, match="leads out of its folders"):
        job_files.find(home, row, whole)
