"""Outputs to real stores: whole files only, whatever writes, cuts and kills meanwhile."""

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
from allranks.errors import AllranksError, NotFound
from allranks.plan.data.addresses import Account, Address
from tests.stores.servers import Site, Wire

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.timeout(900)]
MB = 1_000_000


class Place:
    """An output folder of a node, and what is in the store of it."""

    def __init__(self, tmp_path: Path, account: Account, key: str, is_file: bool = False) -> None:
        self.folder = tmp_path / "o'ut put"
        self.folder.mkdir()
        self.account, self.key = account, key
        self.only = key.rpartition("/")[2] if is_file else ""
        self.manifest = tmp_path / "manifests" / "m.json"
        self.bringer = self.another()

    def another(self) -> Uploader:
        uri = f"s3://bucket/{self.key}"
        output = Output("m", uri, self.account, "store", str(self.folder), self.only, True)
        return Uploader(output, self.manifest)

    def look(self, end: bool = False) -> dict[str, bytes]:
        self.bringer.look(end, lambda done, total: None)
        return self.there()

    def there(self) -> dict[str, bytes]:
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


def test_a_file_is_brought_when_nobody_writes_it_and_it_is_still(place: Place) -> None:
    file = (place.folder / "model.pt").open("wb")
    file.write(b"half ")
    file.flush()
    assert place.look() == {}
    assert place.look() == {}  # as it was, and still open
    file.write(b"whole")
    file.close()
    assert place.look() == {}  # it may be opened again at once
    assert place.look() == {"model.pt": b"half whole"}
    (place.folder / "model.pt").write_bytes(b"the next")
    assert place.look() == {"model.pt": b"half whole"}
    assert place.look() == {"model.pt": b"the next"}


def test_what_is_replaced_by_renaming_and_what_is_removed(place: Place) -> None:
    (place.folder / "sub dir").mkdir()
    for name in ("last.pt", "sub dir/step ü 1.pt"):
        (place.folder / name).write_bytes(name.encode())
    place.look()
    assert set(place.look()) == {"last.pt", "sub dir/step ü 1.pt"}
    (place.folder / "last.pt.tmp").write_bytes(b"new")
    os.rename(place.folder / "last.pt.tmp", place.folder / "last.pt")
    (place.folder / "sub dir/step ü 1.pt").unlink()
    place.look()
    assert place.look() == {"last.pt": b"new"}


@pytest.mark.end_to_end
def test_at_the_end_everything_and_a_manifest_with_checksums(place: Place) -> None:
    big = os.urandom(30 * MB)
    (place.folder / "big.bin").write_bytes(big)
    (place.folder / "empty").touch()
    (place.folder / "link").symlink_to("big.bin")
    assert place.look(end=True) == {"big.bin": big, "empty": b"", "link": big}
    files = {e["path"]: e for e in json.loads(place.manifest.read_text())["files"]}
    assert files["big.bin"]["size"] == 30 * MB
    assert int(files["big.bin"]["crc32"], 16) == zlib.crc32(big)


def test_one_that_writes_to_the_very_end_is_named(place: Place) -> None:
    with (
        (place.folder / "never.bin").open("wb"),
        pytest.raises(AllranksError, match=r"'never.bin' of the output m is still being writ"),
    ):
        place.look(end=True)
    assert place.look(end=True) == {"never.bin": b""}


def test_another_goes_on_from_the_manifest(place: Place, wire: Wire) -> None:
    (place.folder / "big.bin").write_bytes(os.urandom(12 * MB))
    place.look(end=True)
    opened = open_store(place.account, Address(place.account.store))
    tag = obstore.head(opened, f"{place.key}/big.bin")["last_modified"]
    (place.folder / "more").write_bytes(b"more")
    place.bringer = place.another()
    assert set(place.look(end=True)) == {"big.bin", "more"}
    assert obstore.head(opened, f"{place.key}/big.bin")["last_modified"] == tag


def test_a_cut_connection_leaves_no_half_object(place: Place, wire: Wire) -> None:
    big = os.urandom(40 * MB)
    (place.folder / "big.bin").write_bytes(big)
    wire.cut_after, wire.cuts = 0, 6  # before the first answers
    assert place.look(end=True) == {"big.bin": big}


def test_a_single_file(tmp_path: Path, account: Account) -> None:
    place = Place(tmp_path, account, "out/one/model.onnx", is_file=True)
    (place.folder / "model.onnx.tmp").write_bytes(b"onnx")
    place.look()
    place.look()
    (place.folder / "model.onnx.tmp").rename(place.folder / "model.onnx")
    (place.folder / "else").write_bytes(b"else")
    place.look(end=True)
    opened = open_store(account, Address(account.store))
    assert bytes(obstore.get(opened, place.key).bytes()) == b"onnx"


def test_no_such_bucket(place: Place) -> None:
    store = place.account.store._replace(bucket="nowhere")
    place.account = place.account._replace(store=store)
    place.bringer = place.another()
    (place.folder / "x").write_bytes(b"x")
    with pytest.raises(NotFound, match="there is no bucket 'nowhere'"):
        place.look(end=True)


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [(403, "InvalidAccessKeyId", True), (400, "ExpiredToken", True), (403, "AccessDenied", False)],
)
def test_who_may_not_look_may_yet_write(
    tmp_path: Path, account: Account, site: Site, status: int, code: str, told: bool
) -> None:
    site.says = (status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())
    store = account.store._replace(endpoint=f"https://127.0.0.1:{site.port}")
    place = Place(tmp_path, account._replace(store=store), "x")
    expected = pytest.raises(AllranksError, match="'store' may not open it: No")
    with expected if told else contextlib.nullcontext():
        place.bringer.ask()


def test_who_is_nobody_may_not_write_either() -> None:
    said = "GET http://169.254.169.254/latest/api/token: status 403 Forbidden"
    assert not object_stores.may_not_list(Exception(said))
    assert object_stores.may_not_list(Exception("status 403 Forbidden"))


def test_what_cannot_be_seen_has_not_been_taken_away(place: Place) -> None:
    (place.folder / "sub").mkdir()
    (place.folder / "sub" / "kept").write_bytes(b"kept")
    assert place.look(end=True) == {"sub/kept": b"kept"}
    whole = place.folder.with_name("whole")
    place.folder.rename(whole)
    assert place.look() == {"sub/kept": b"kept"}
    with pytest.raises(AllranksError, match="the output m cannot be read: No such file"):
        place.look(end=True)


def test_one_file_that_cannot_be_brought_keeps_no_other_from_it(place: Place) -> None:
    for name in ("a", "b\nad", "c"):
        (place.folder / name).write_bytes(name.encode())
    with pytest.raises(AllranksError, match=r"the file 'b\\nad' .* a name no store can have"):
        place.look(end=True)
    assert place.there() == {"a": b"a", "c": b"c"}
