"""Parts of a run of Azure ML v1, and files of a datastore."""

import json
from pathlib import Path

import pytest

from allranks.agent.inside import azureml_run
from allranks.compat.azure.v1.data.datastore import Datastore


def test_children_of_a_run_log_as_its_parts(tmp_path: Path) -> None:
    run = azureml_run.Run("job")
    run._file = str(tmp_path / "metrics")
    for child in run.create_children(count=2):
        child.log("mse", 1.0)
    for child in run.create_children(tag_key="fold", tag_values=[1, 2]):
        child.log("mse", 2.0)
    lines = Path(run._file).read_text().splitlines()
    names = [point[0] for line in lines for point in json.loads(line)["points"]]
    assert len(set(names)) == 4
    assert names[2:] == ["fold_1/mse", "fold_2/mse"]


def test_the_prefix_of_a_download_is_a_folder_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store/a").mkdir(parents=True)
    for name in ("a/x.csv", "a/y.csv", "z.csv"):
        (tmp_path / "store" / name).write_text(name)
    monkeypatch.setattr(Datastore, "folder", tmp_path / "store")
    for prefix, count in (("a/x.csv", 1), ("a", 2), (None, 3), ("/a/", 2), ("a/x", 1), ("b", 0)):
        assert Datastore(None, "s").download(str(tmp_path / f"{count}"), prefix=prefix) == count
    assert (tmp_path / "1/a/x.csv").read_text() == "a/x.csv"
