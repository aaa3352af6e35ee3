"""What a job leaves in its outputs leads its agent to no file that the job cannot read."""

import json
import os
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from allranks import folder_trees
from allranks.agent.data import object_stores
from allranks.agent.data.mover_process import uploaded_text
from allranks.agent.data.transfers import Transfers
from allranks.agent.data.upload import Output, Uploader
from allranks.agent.environments.node_container import _write_private
from allranks.core.data.addresses import Account, Store
from allranks.core.environments import container
from allranks.core.plan import Container, OutputTask, Task
from allranks.errors import AllranksError

SECRET = b'{"files": []}'


class Bed:
    """An attempt in a container, and a secret beside it."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.top, self.secret = top, top / "owner/token"
        self.attempt, self.record = top / "node/attempt-1", top / "jobs/j"
        self.folder = self.attempt / "outputs/m"
        for folder in (self.secret.parent, self.folder, self.record):
            folder.mkdir(parents=True)
        self.secret.write_bytes(SECRET)
        self.manifest = self.record / "manifests/attempt-1/m.node-0.json"
        outputs = (OutputTask("m", "", uri="s3://bucket/out"),)
        image = Container("podman", "image")
        self.task = Task("j", "e", "c", record=str(self.record), container=image, outputs=outputs)
        self.store = MemoryStore()
        monkeypatch.setattr(object_stores, "open_store", lambda *_: self.store)
        roots = container.visible(self.task, str(self.attempt))
        account = Account(Store("s3", "bucket"))
        self.output = Output("m", "s3://bucket/out", account, "", str(self.folder), "", True, roots)

    def upload(self) -> Uploader:
        uploader = Uploader(self.output, self.manifest, self.record)
        uploader.upload(True, lambda done, total: None)
        return uploader

    def objects(self) -> set[str]:
        listed = (each["path"] for several in obstore.list(self.store) for each in several)
        return {path.removeprefix("out/") for path in listed}


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(tmp_path, monkeypatch)


def test_links_that_lead_out_are_left_out_and_named(bed: Bed):
    (bed.folder / "model.pt").write_bytes(b"model")
    (bed.record / "last.pt").write_bytes(b"last")
    for name, path in (
        ("best.pt", "model.pt"),
        ("last.pt", bed.record / "last.pt"),
        ("token", bed.secret),
        ("owner", bed.secret.parent),
        ("through", "owner/token"),
    ):
        (bed.folder / name).symlink_to(path)
    left_out = bed.upload().left_out
    assert bed.objects() == {"model.pt", "best.pt", "last.pt"}
    assert left_out == {"token", "through"}
    summary = {"brought": "m", "files": 1, "size": 1, "uri": "s3://b", "left_out": ["a\nb"]}
    assert "left out, because they lead out of the job's folders: a\\nb" in uploaded_text(summary)


def test_without_a_container_the_job_reads_what_its_agent_reads(bed: Bed):
    (bed.folder / "data").symlink_to(bed.secret)
    assert container.visible(bed.task._replace(container=None), "/a") == ["/"]
    bed.output = bed.output._replace(roots=["/"])
    bed.upload()
    assert bed.objects() == {"data"}


@pytest.mark.parametrize("swap", ["file", "folder"])
def test_a_file_that_is_swapped_for_a_link(bed: Bed, swap: str, monkeypatch: pytest.MonkeyPatch):
    (bed.folder / "sub").mkdir()
    (bed.folder / "sub/token").write_bytes(b"harmless")
    scan = Uploader._scan

    def swapped(uploader):
        files = scan(uploader)
        path = bed.folder / ("sub/token" if swap == "file" else "sub")
        path.rename(bed.folder / "away")
        path.symlink_to(bed.secret if swap == "file" else bed.secret.parent)
        return files

    monkeypatch.setattr(Uploader, "_scan", swapped)
    with pytest.raises(AllranksError, match="a link leads out of the job's folders"):
        bed.upload()
    assert bed.objects() == set()


@pytest.mark.parametrize("level", ["outputs/m", "outputs"])
def test_the_output_is_replaced_by_a_link(bed: Bed, level: str):
    (bed.attempt / level).rename(bed.attempt / "away")
    (bed.secret.parent / "m").mkdir()
    (bed.secret.parent / "m/key").write_bytes(b"x")
    (bed.attempt / level).symlink_to(bed.secret.parent)
    with pytest.raises(AllranksError, match="a link leads out"):
        bed.upload()
    assert bed.objects() == set()


def test_the_manifest_is_not_written_elsewhere(bed: Bed):
    (bed.folder / "a").write_bytes(b"a")
    (bed.record / "manifests").symlink_to(bed.secret.parent)
    with pytest.raises(OSError):
        bed.upload()
    assert os.listdir(bed.secret.parent) == ["token"]
    (bed.record / "manifests").unlink()
    bed.manifest.parent.mkdir(parents=True)
    bed.manifest.symlink_to(bed.secret)
    bed.upload()
    assert bed.secret.read_bytes() == SECRET
    assert json.loads(bed.manifest.read_text())["files"][0]["path"] == "a"


@pytest.mark.parametrize("text", ["[" * 99_999, '{"files": [1]}', '{"files": {}}', "null"])
def test_any_manifest_is_read(bed: Bed, text: str):
    bed.manifest.parent.mkdir(parents=True)
    bed.manifest.write_text(text)
    bed.upload()


@pytest.mark.parametrize("level", ["unbrought", "unbrought/node-0", "unbrought/node-0/m"])
def test_what_is_not_uploaded_is_kept_in_the_record(bed: Bed, level: str):
    transfers = Transfers(bed.task, 0, bed.attempt, None, None, None)  # type: ignore[arg-type]
    transfers._output_paths = {"m": bed.folder}
    (bed.folder / "model.pt").write_bytes(b"model")
    (bed.record / level).parent.mkdir(parents=True, exist_ok=True)
    (bed.record / level).symlink_to(bed.secret.parent)
    (bed.secret.parent / "m").mkdir()
    (bed.secret.parent / "m/key").write_bytes(b"x")
    try:
        kept = Path(transfers.keep(lambda text, facts: None))
        assert (kept / "m/model.pt").read_bytes() == b"model"
    except OSError:
        assert level != "unbrought/node-0/m"
    files = {
        os.path.relpath(file, bed.secret.parent) for file in folder_trees.files(bed.top / "owner")
    }
    assert files == {"token", "m/key"}


def test_scripts_for_the_container_are_not_written_elsewhere(bed: Bed):
    (bed.attempt / "container").symlink_to(bed.secret.parent)
    with pytest.raises(OSError):
        _write_private(bed.attempt / "container/token", "exec evil")
    (bed.attempt / "container").unlink()
    (bed.attempt / "container").mkdir()
    (bed.attempt / "container/1.sh").symlink_to(bed.secret)
    with pytest.raises(OSError):
        _write_private(bed.attempt / "container/1.sh", "exec evil")
    assert bed.secret.read_bytes() == SECRET
