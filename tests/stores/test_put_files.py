"""Uploads put into a real S3, as client and server do."""

from __future__ import annotations

import hashlib
from pathlib import Path

import obstore
import pytest

from allranks.agent.data.file_entry import Changed
from allranks.agent.data.object_stores import open_store
from allranks.agent.data.put_files import Content, StoredUpload
from allranks.core.data.addresses import Account, Address

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]
DIGEST = "0" * 64


@pytest.fixture
def files(tmp_path: Path) -> list[Content]:
    contents = []
    for name, data in {"a": b"1", "b": b"22", "large": bytes(9 << 20)}.items():
        (tmp_path / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        contents.append(Content(f"set/{name}", str(tmp_path / name), len(data), sha256))
    return contents


def test_what_is_there_is_not_sent_again(
    account: Account, place: str, files: list[Content]
) -> None:
    upload = StoredUpload(account, place, DIGEST, "birds")
    assert upload.put(files, b"{}", seconds=0) == sum(file.size for file in files)
    assert upload.manifest() is None
    opened = open_store(account, Address(account.store))
    obstore.put(opened, f"{place}/allranks-uploads/{DIGEST}/set/large", bytes(files[2].size))
    progress: list[tuple[int, int]] = []
    assert upload.put(files, b"{}", lambda done, total: progress.append((done, total))) == 0
    assert progress[-1] == (3, 3)
    assert upload.manifest() == b"{}"


@pytest.mark.parametrize("name", ["b", "large"])
def test_a_file_that_changed_does_not_appear(
    account: Account, place: str, files: list[Content], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"x" * (tmp_path / name).stat().st_size)
    upload = StoredUpload(account, place, DIGEST, "birds")
    with pytest.raises(Changed):
        upload.put(files, b"{}")
    assert upload.manifest() is None
    opened = open_store(account, Address(account.store))
    paths = [item["path"] for some in obstore.list(opened, place) for item in some]
    assert not any(path.endswith(f"/{name}") for path in paths)
