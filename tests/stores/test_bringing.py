"""Outputs to real stores, with files being written and connections lost."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path

import obstore
import pytest

from allranks.agent.data import object_stores
from allranks.agent.data.object_stores import open_store
from allranks.agent.data.upload import Output, Uploader
from allranks.core.data.addresses import Account, Address
from allranks.errors import AllranksError, NotFound
from tests.stores.servers import Site, Wire

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.timeout(900)]
MB = 1_000_000


class Place:
    """An output folder of a node, and its objects in the store."""

    def __init__(self, tmp_path: Path, account: Account, key: str, is_file: bool = False) -> None:
        self.folder = tmp_path / "o'ut put"
        self.folder.mkdir()
        self.account, self.key = account, key
        self.only = key.rpartition("/")[2] if is_file else ""
        self.manifest = tmp_path / "manifests" / "m.json"
        self.uploader = self.new_uploader()

    def new_uploader(self) -> Uploader:
        uri = f"s3://bucket/{self.key}"
        output = Output("m", uri, self.account, "store", str(self.folder), self.only, True)
        return Uploader(output, self.manifest, self.manifest.parents[1])

    def upload(self, end: bool = False) -> dict[str, bytes]:
        self.uploader.upload(end, lambda done, total: None)
        return self.objects()

    def objects(self) -> dict[str, bytes]:
        opened = open_store(self.account, Address(self.account.store))
        found = [each for several in obstore.list(opened, self.key) for each in several]
        return {
            each["path"].removeprefix(self.key).lstrip("/"): bytes(
                obstore.get(opened, each["path"]).bytes()
            )
            for each in found
        }


@pytest.fixture
def place(tmp_path: Path, account: Account, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, account, f"out/{abs(hash(request.node.nodeid))}")


def test_a_file_is_uploaded_once_closed_and_unchanged(place: Place) -> None:
    file = (place.folder / "model.pt").open("wb")
    file.write(b"half ")
    file.flush()
    assert place.upload() == {}
    assert place.upload() == {}  # unchanged, but open
    file.write(b"whole")
    file.close()
    assert place.upload() == {}  # first scan since it was closed
    assert place.upload() == {"model.pt": b"half whole"}
    (place.folder / "model.pt").write_bytes(b"the next")
    assert place.upload() == {"model.pt": b"half whole"}
    assert place.upload() == {"model.pt": b"the next"}


def test_renamed_and_deleted_files(place: Place) -> None:
    (place.folder / "sub dir").mkdir()
    for name in ("last.pt", "sub dir/step ü 1.pt"):
        (place.folder / name).write_bytes(name.encode())
    place.upload()
    assert set(place.upload()) == {"last.pt", "sub dir/step ü 1.pt"}
    (place.folder / "last.pt.tmp").write_bytes(b"new")
    os.rename(place.folder / "last.pt.tmp", place.folder / "last.pt")
    (place.folder / "sub dir/step ü 1.pt").unlink()
    place.upload()
    assert place.upload() == {"last.pt": b"new"}


@pytest.mark.end_to_end
def test_the_final_upload_writes_a_manifest(place: Place) -> None:
    big = os.urandom(30 * MB)
    (place.folder / "big.bin").write_bytes(big)
    (place.folder / "empty").touch()
    (place.folder / "link").symlink_to("big.bin")
    assert place.upload(end=True) == {"big.bin": big, "empty": b"", "link": big}
    files = {e["path"]: e for e in json.loads(place.manifest.read_text())["files"]}
    assert files["big.bin"]["size"] == 30 * MB
    assert int(files["big.bin"]["crc32"], 16) == zlib.crc32(big)


def test_a_file_open_at_the_end_is_named(place: Place) -> None:
    with (
        (place.folder / "never.bin").open("wb"),
        pytest.raises(AllranksError, match=r"'never.bin' of the output m is still being writ"),
    ):
        place.upload(end=True)
    assert place.upload(end=True) == {"never.bin": b""}


def test_a_new_uploader_resumes_from_the_manifest(place: Place, wire: Wire) -> None:
    (place.folder / "big.bin").write_bytes(os.urandom(12 * MB))
    place.upload(end=True)
    opened = open_store(place.account, Address(place.account.store))
    tag = obstore.head(opened, f"{place.key}/big.bin")["last_modified"]
    (place.folder / "more").write_bytes(b"more")
    place.uploader = place.new_uploader()
    assert set(place.upload(end=True)) == {"big.bin", "more"}
    assert obstore.head(opened, f"{place.key}/big.bin")["last_modified"] == tag


def test_lost_connections_leave_no_partial_object(place: Place, wire: Wire) -> None:
    big = os.urandom(40 * MB)
    (place.folder / "big.bin").write_bytes(big)
    wire.cut_after, wire.cuts = 0, 6  # before the first answers
    assert place.upload(end=True) == {"big.bin": big}


def test_a_single_file(tmp_path: Path, account: Account) -> None:
    place = Place(tmp_path, account, "out/one/model.onnx", is_file=True)
    (place.folder / "model.onnx.tmp").write_bytes(b"onnx")
    place.upload()
    place.upload()
    (place.folder / "model.onnx.tmp").rename(place.folder / "model.onnx")
    (place.folder / "else").write_bytes(b"else")
    place.upload(end=True)
    opened = open_store(account, Address(account.store))
    assert bytes(obstore.get(opened, place.key).bytes()) == b"onnx"


def test_missing_bucket(place: Place) -> None:
    store = place.account.store._replace(bucket="nowhere")
    place.account = place.account._replace(store=store)
    place.uploader = place.new_uploader()
    (place.folder / "x").write_bytes(b"x")
    with pytest.raises(NotFound, match="bucket 'nowhere' not found"):
        place.upload(end=True)


@pytest.mark.parametrize(
    ("status", "code", "refused"),
    [(403, "InvalidAccessKeyId", True), (400, "ExpiredToken", True), (403, "AccessDenied", False)],
)
def test_credentials_that_may_not_list_may_write(
    tmp_path: Path, account: Account, site: Site, status: int, code: str, refused: bool
) -> None:
    site.says = (status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())
    store = account.store._replace(endpoint=f"https://127.0.0.1:{site.port}")
    place = Place(tmp_path, account._replace(store=store), "x")
    expected = pytest.raises(AllranksError, match="access to the datastore 'store': No")
    with expected if refused else contextlib.nullcontext():
        place.uploader.check_access()


def test_missing_credentials_may_not_write() -> None:
    message = "GET http://169.254.169.254/latest/api/token: status 403 Forbidden"
    assert not object_stores.may_not_list(Exception(message))
    assert object_stores.may_not_list(Exception("status 403 Forbidden"))


def test_an_unreadable_folder_deletes_no_objects(place: Place) -> None:
    (place.folder / "sub").mkdir()
    (place.folder / "sub" / "kept").write_bytes(b"kept")
    assert place.upload(end=True) == {"sub/kept": b"kept"}
    whole = place.folder.with_name("whole")
    place.folder.rename(whole)
    assert place.upload() == {"sub/kept": b"kept"}
    with pytest.raises(AllranksError, match="cannot read the output m: No such file"):
        place.upload(end=True)


def test_one_failed_file_does_not_stop_the_others(place: Place) -> None:
    for name in ("a", "b\nad", "c"):
        (place.folder / name).write_bytes(name.encode())
    with pytest.raises(AllranksError, match=r"stores do not allow the file name 'b\\nad'"):
        place.upload(end=True)
    assert place.objects() == {"a": b"a", "c": b"c"}
