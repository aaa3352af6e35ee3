"""Which environment a registered model brings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.errors import NotFound
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.endpoints.model_environment import environment_of, note_on, with_environment
from allranks.store.assets import AssetRow
from allranks.store.files.trees import Trees


@pytest.fixture
def services(tmp_path: Path) -> Any:
    def job(name: str) -> Any:
        if name != "train":
            raise NotFound(f"job {name!r} not found")
        return SimpleNamespace(spec={"environment": "azureml:sklearn-1.5:1"})

    nowhere: Any = None
    versions = ModelVersions(nowhere, Trees(tmp_path / "models"))
    return SimpleNamespace(
        models=SimpleNamespace(versions=versions), records=SimpleNamespace(get=job)
    )


def model(services: Any, folder: Path, job: str = "", **files: str) -> AssetRow:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    trees = services.models.versions.trees
    with trees.copy({f"m/{path.name}": path for path in folder.iterdir()}) as made:
        trees.keep(made)
    return AssetRow("m", "1", {"digest": made.digest, "job": job}, (), 0.0)


def test_the_model_then_its_job(services: Any, tmp_path: Path):
    conda = {"conda.yaml": "dependencies: [python=3.9]", "MLmodel": "x"}
    own = environment_of(model(services, tmp_path / "a", "train", **conda), True, services)
    assert own["python"] == "3.9"
    of_job = model(services, tmp_path / "b", "train", MLmodel="x")
    assert environment_of(of_job, True, services) == "azureml:sklearn-1.5:1"
    assert (
        environment_of(model(services, tmp_path / "c", "gone", MLmodel="y"), True, services) is None
    )


def test_plain_files_have_that_of_their_job_without_a_script(services: Any, tmp_path: Path):
    pickle = model(services, tmp_path / "a", "train", **{"m.pkl": "x"})
    assert environment_of(pickle, False, services) == "azureml:sklearn-1.5:1"
    assert environment_of(pickle, True, services) is None


def test_another_version_leaves_nothing_of_the_one_before():
    assert with_environment({"command": "c", "environment": {"pip": ["a"]}}, None) == {
        "command": "c"
    }
    environment = {"description": "conda.yaml of the model m:1", "nearest_python": True}
    (note,) = note_on(with_environment({}, environment))
    assert note == "the environment is that of conda.yaml of the model m:1"
    assert note_on({"environment": "current"}) == []
