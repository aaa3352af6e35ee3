"""The folder that scoring scripts find in AZUREML_MODEL_DIR."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allranks.agent.inside import allranks_model_folder


def test_a_model_in_a_folder_with_the_home_is_copied_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = tmp_path / "home" / "nodes" / "e-blue.1" / "0" / "attempt-1"
    attempt.mkdir(parents=True)
    (tmp_path / "home" / "nodes" / "e-blue.0").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.bin").write_text("1")
    monkeypatch.setenv("ALLRANKS_METRICS_FILE", str(attempt / "logged.jsonl"))
    folder = Path(allranks_model_folder.make(str(tmp_path), "m"))
    copied = {os.path.relpath(path, folder / "m") for path in (folder / "m").rglob("*")}
    assert copied == {"home", "weights", "weights/a.bin"}


def test_links_of_a_model_that_lead_back_are_links_of_its_copy(tmp_path: Path) -> None:
    """Two of them would be followed 2^40 times."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.bin").write_text("1")
    for name, to in (("back", "."), ("again", "."), ("latest", "weights")):
        (tmp_path / name).symlink_to(to)
    folder = Path(allranks_model_folder.make(str(tmp_path), "m")) / "m"
    assert sorted(os.listdir(folder)) == ["again", "back", "latest", "weights"]
    assert (folder / "latest" / "a.bin").read_text() == "1"
    assert (folder / "back").resolve() == (folder / "again").resolve() == folder.resolve()
