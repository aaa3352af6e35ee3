"""Uploads put into a real S3, as client and server do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from allranks.agent.data.file_entry import Changed
from allranks.agent.data.object_stores import open_store
from allranks.agent.data.put_files import Content, StoredUpload
from allranks.agent.data.stored_data import StoredData
from allranks.core.data import garbage_rules
from allranks.core.data.addresses import Account, Address, Located
from allranks.core.data.garbage_rules import RULES, Kind
from allranks.http_client import Client
from allranks.sdk.transfer import from_store
from allranks.sdk.transfer.fetch import Tally
from allranks.sdk.transfer.from_store import StoreFetcher
from allranks.sdk.upload.send import upload
from allranks.server.assets import announced_uploads
from tests.server.serving import JOB, Served, served

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
    folder = Address(account.store, place)
    upload = StoredUpload(account, folder, DIGEST, "birds")
    assert upload.put(files, b"{}", seconds=0) == sum(file.size for file in files)
    assert upload.manifest() is None
    opened = open_store(account, Address(account.store))
    obstore.put(opened, f"{folder.key}/{DIGEST}/set/large", bytes(files[2].size))
    progress: list[tuple[int, int]] = []
    assert upload.put(files, b"{}", lambda done, total: progress.append((done, total))) == 0
    assert progress[-1] == (3, 3)
    assert upload.manifest() == b"{}"
    assert upload.has(files, b"{}")
    obstore.delete(opened, f"{folder.key}/{DIGEST}/set/a")
    assert not upload.has(files, b"{}")


def test_what_went_meanwhile_is_sent_again(
    account: Account, place: str, files: list[Content]
) -> None:
    opened = open_store(account, Address(account.store))
    upload = StoredUpload(account, Address(account.store, place), DIGEST, "birds")
    key = f"{place}/{DIGEST}/set/a"
    obstore.put(opened, key, b"1")
    listings: list[None] = []

    def announce() -> None:
        if len(listings) == 1:
            obstore.delete(opened, key)
        listings.append(None)

    assert upload.put(files, b"{}", announce=announce) == 0
    assert len(listings) == 3
    assert upload.has(files, b"{}")


@pytest.mark.parametrize("name", ["b", "large"])
def test_a_file_that_changed_does_not_appear(
    account: Account, place: str, files: list[Content], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"x" * (tmp_path / name).stat().st_size)
    upload = StoredUpload(account, Address(account.store, place), DIGEST, "birds")
    with pytest.raises(Changed):
        upload.put(files, b"{}")
    assert upload.manifest() is None
    opened = open_store(account, Address(account.store))
    paths = [item["path"] for some in obstore.list(opened, place) for item in some]
    assert not any(path.endswith(f"/{name}") for path in paths)


def test_a_download_goes_on_where_it_was_cut(
    account: Account, place: str, files: list[Content], tmp_path: Path
) -> None:
    StoredUpload(account, Address(account.store, place), DIGEST, "birds").put(files, b"{}")
    uri = str(Address(account.store, f"{place}/{DIGEST}/set"))
    data = StoredData(Located(uri=uri, asset="set:1"), account)
    listed, folder, tally = data.files(), tmp_path / "got", Tally()
    entries = from_store.entries("set", listed)
    (large,) = [entry for entry in entries if entry.path == "large"]
    (folder / "set").mkdir(parents=True)
    (folder / "set" / large.part).write_bytes(bytes(5 << 20))
    fetcher = StoreFetcher(data, listed, folder, tally, threading.Event())
    fetcher.do(entries)
    fetcher.close()
    assert tally.received == (4 << 20) + 3
    for content in files:
        assert (folder / content.path).read_bytes() == Path(content.file).read_bytes()
    assert len(list((folder / "set").iterdir())) == 3


@pytest.fixture
def server(
    tmp_path: Path, account: Account, place: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    """One with the datastore birds, where uploads may be removed at once."""
    rule = RULES[Kind.STORED]._replace(least=0.0)
    monkeypatch.setattr(garbage_rules, "RULES", {**RULES, Kind.STORED: rule})
    monkeypatch.setattr(announced_uploads, "HOLDS", 0.0)
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "client"))
    birds = {"name": "birds", "type": "s3", "bucket": "bucket", "prefix": place}
    birds["endpoint"] = account.store.endpoint
    with served(tmp_path / "home") as found:
        body = {**birds, "credentials": dict(account.credentials)}
        assert found.people.post("/api/v1/datastores", json=body).status_code == 201
        yield found


@pytest.mark.medium
@pytest.mark.parametrize("straight", [True, False])
def test_gc_removes_what_nothing_uses(
    server: Served,
    files: list[Content],
    account: Account,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    straight: bool,
) -> None:
    if straight:
        for key, value in account.credentials.items():
            monkeypatch.setenv(f"AWS_{key.upper()}", value)
    opened = open_store(account, Address(account.store))

    def there() -> list[str]:
        found = [item["path"] for some in obstore.list(opened, place) for item in some]
        return sorted(path.rpartition("/")[2] for path in found)

    def collected(older_than: float = 0.0, **more: object) -> list[str]:
        body = {"older_than_seconds": older_than, **more}
        answer = server.people.post("/api/v1/gc", json=body).json()
        assert not answer["failed"]
        stored = [item for item in answer["items"] if item["kind"] == Kind.STORED]
        return [item["path"].rpartition("/")[2] for item in stored]

    def sent(content: Content) -> str:
        file, connect = Path(content.file), lambda: Client(server.url, server.token())
        return upload(connect, file, datastore="birds").path

    paths = [sent(file) for file in files]
    digests = [path.split("/")[-2] for path in paths]
    asset = {"name": "a", "path": paths[0]}
    assert server.people.post("/api/v1/data", json=asset).status_code == 201
    spec = {**JOB["spec"], "inputs": {"d": {"path": paths[1], "type": "uri_file"}}}
    made = server.people.post("/api/v1/jobs", json={**JOB, "spec": spec})
    assert made.status_code == 201, made.text
    everything = there()
    assert collected(older_than=600.0) == []
    assert collected(dry_run=True) == digests[2:]
    assert there() == everything
    assert collected() == digests[2:]
    assert there() == sorted(["a", "b", *(f"{digest}.json" for digest in digests[:2])])
    assert server.people.delete("/api/v1/data/a:1").status_code == 200
    assert collected() == digests[:1]
    # What was removed is sent again, and what somebody else removed is noticed.
    assert sent(files[2]) == paths[2]
    obstore.delete(opened, [f"{place}/{paths[2].partition('/paths/')[2]}"])
    assert sent(files[2]) == paths[2]
    assert "large" in there()
    # Nothing goes on which an upload may count that has begun, but not ended.
    monkeypatch.setattr(announced_uploads, "HOLDS", garbage_rules.DAY)
    assert sent(files[2]) == paths[2]
    obstore.delete(opened, f"{place}/{paths[2].partition('/paths/')[2].rpartition('/')[0]}.json")
    assert collected() == []
    assert "large" in there()
