"""Inputs from real stores, with network faults, full disks, kills and concurrent jobs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pytest

from allranks.agent.data import cache, object_stores
from allranks.agent.data.input_request import InputRequest
from allranks.agent.data.inputs import CachedInput, InputCache
from allranks.agent.data.object_stores import open_store
from allranks.core.data.addresses import Account, Address, Store
from allranks.errors import AllranksError, NotFound
from tests.stores.servers import ACCOUNT, KEY, Site, Wire, put
from tests.stores.whole import check_cache
from tests.support import until

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.timeout(900)]
MB = 1_000_000


def provide(folder: Path, wanted: InputRequest, limit: int | None = None) -> CachedInput:
    with InputCache(folder, limit, lambda message: None) as provider:
        return provider.provide(wanted)


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_check_cache_detects_a_changed_byte(tmp_path: Path, account: Account, place: str) -> None:
    """check_cache runs after every test here."""
    put(account, {f"{place}/small": b"x" * 1000, f"{place}/large": b"y" * 20 * MB})
    data = Path(
        provide(tmp_path / "c", InputRequest("d", f"s3://bucket/{place}", account=account)).path
    )
    assert check_cache(tmp_path / "c") == 2
    for name in ("small", "large"):
        file = data / name
        before, times = file.read_bytes(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
        file.chmod(0o644)
        for wrong in (before[:-1] + b"z", before):
            file.write_bytes(wrong)
            os.utime(file, ns=times)
            if wrong != before:
                with pytest.raises(AssertionError, match=name):
                    check_cache(tmp_path / "c")


FILES = {f"d{n % 3}/file {n} ü'.txt": os.urandom(n * 100) for n in range(40)}


def test_a_cached_folder_is_fetched_once(
    tmp_path: Path, account: Account, wire: Wire, place: str
) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    wanted = InputRequest("data", f"s3://bucket/{place}", account=account)
    first = provide(tmp_path / "c", wanted)
    assert content(Path(first.path)) == FILES
    assert (first.files, first.moved) == (40, sum(map(len, FILES.values())))
    # Whichever node fetches it, its folders are as old.
    for folder in Path(first.path).iterdir():
        newest = max(file.stat().st_mtime_ns for file in folder.iterdir())
        assert folder.stat().st_mtime_ns // 1000 == newest // 1000
    before = wire.brought
    second = provide(tmp_path / "c", wanted)
    assert (second.path, second.moved) == (first.path, 0)
    assert wire.brought - before < 30_000  # the listing


def test_only_changed_files_are_fetched_again(tmp_path: Path, account: Account, place: str) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    wanted = InputRequest("data", f"s3://bucket/{place}", account=account)
    first = provide(tmp_path / "c", wanted)
    put(account, {f"{place}/d1/new": b"x" * 1000})
    second = provide(tmp_path / "c", wanted)
    assert second.path != first.path
    assert second.moved == 1000
    assert content(Path(second.path)) == {**FILES, "d1/new": b"x" * 1000}
    assert content(Path(first.path)) == FILES


def test_lost_connections_are_retried(
    tmp_path: Path, account: Account, wire: Wire, place: str
) -> None:
    big = os.urandom(60 * MB)
    put(account, {f"{place}/big.bin": big})
    wire.cut_after, wire.cuts = 3 * MB, 12
    found = provide(
        tmp_path / "c", InputRequest("x", f"s3://bucket/{place}/big.bin", account=account)
    )
    assert Path(found.path).read_bytes() == big
    assert Path(found.path).name == "big.bin"
    assert wire.cuts == 0


def mover(folder: Path, uri: str, account: Account, **more: Any) -> subprocess.Popen[str]:
    request = {
        "cache": str(folder),
        "limit": None,
        "inputs": [
            {
                "name": "x",
                "uri": uri,
                "account": {"store": account.store._asdict(), "credentials": account.credentials},
                "share": None,
                **more,
            }
        ],
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "allranks.agent.data.mover"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(request) + "\n")
    child.stdin.flush()
    return child


def test_resume_after_a_killed_download(
    tmp_path: Path, account: Account, wire: Wire, place: str
) -> None:
    big = os.urandom(160 * MB)
    put(account, {f"{place}/big.bin": big})
    uri = f"s3://bucket/{place}/big.bin"
    wire.brought, wire.hold_after = 0, 130 * MB
    with mover(tmp_path / "c", uri, account) as child:
        assert wire.reached.wait(60)
        until(lambda: any((tmp_path / "c").glob("*.part/journal")))
        journal = next((tmp_path / "c").glob("*.part/journal"))
        until(lambda: journal.read_text().count("\n") >= 3)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert cache.read(journal.parent) is None
    wire.go()
    found = provide(tmp_path / "c", InputRequest("x", uri, account=account))
    assert Path(found.path).read_bytes() == big
    assert found.moved <= 160 * MB - 3 * 8 * MB


def test_resume_after_a_killed_unpack(tmp_path: Path, account: Account, place: str) -> None:
    packed = io.BytesIO()
    names = [f"{n % 50}/{n}" for n in range(4000)]
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 5000
            tar.addfile(entry, io.BytesIO(name.encode().ljust(5000)))
    put(account, {f"{place}/a.tar.gz": packed.getvalue()})
    folder, uri = tmp_path / "c", f"s3://bucket/{place}/a.tar.gz"

    def is_unpacking() -> bool:
        with suppress(FileNotFoundError):  # it renames the folder that it downloaded to
            return any(folder.glob("*.part/data/*/*"))
        return False

    with mover(folder, uri, account, unpack=True) as child:
        until(is_unpacking)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not [*folder.glob(f"*/{cache.MANIFEST}")]
    found = provide(folder, InputRequest("x", uri, account=account, unpack=True))
    assert content(Path(found.path)) == {name: name.encode().ljust(5000) for name in names}


def test_an_unreadable_manifest_is_replaced(tmp_path: Path, account: Account, place: str) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    wanted = InputRequest("x", f"s3://bucket/{place}", account=account)
    tree = Path(provide(tmp_path / "c", wanted).tree)
    (tree / cache.MANIFEST).write_text('{"files": [["hal')
    assert content(Path(provide(tmp_path / "c", wanted).path)) == FILES
    assert cache.read(tree) is not None


def test_given_credentials_are_not_mixed_with_variables(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    known = open_store(account, Address(account.store)).config
    assert known["access_key_id"] == "who"
    assert "session_token" not in known
    assert os.environ["AWS_SESSION_TOKEN"] == "another's"


def test_concurrent_requests_fetch_once(
    tmp_path: Path, account: Account, wire: Wire, place: str
) -> None:
    big = os.urandom(40 * MB)
    put(account, {f"{place}/big.bin": big})
    uri, folder = f"s3://bucket/{place}", tmp_path / "c"
    wire.brought, wire.hold_after = 0, 20 * MB
    with mover(folder, uri, account) as first:
        assert wire.reached.wait(60)
        messages: list[Mapping[str, Any]] = []
        waiting = threading.Event()

        def say(message: Mapping[str, Any]) -> None:
            messages.append(message)
            waiting.set()

        with InputCache(folder, None, say) as provider:
            found: list[CachedInput] = []
            other = threading.Thread(
                target=lambda: found.append(
                    provider.provide(InputRequest("x", uri, account=account))
                )
            )
            other.start()
            assert waiting.wait(30)
            wire.go()
            other.join(60)
        assert messages[0]["waiting"] is True
        assert found[0].moved == 0
        first.communicate(timeout=120)
    assert wire.brought < 50 * MB
    assert content(Path(found[0].path)) == {"big.bin": big}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(folder)])
    if done.returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_small_input_fits_on_a_disk_that_is_nearly_full(
    tmp_path: Path, small_disk: Path, account: Account, place: str
) -> None:
    (small_disk / "other").write_bytes(bytes(30 * MB))
    put(account, {f"{place}/little": b"little", f"{place}/big.bin": bytes(MB)})
    little = InputRequest("x", f"s3://bucket/{place}/little", account=account)
    assert Path(provide(small_disk / "c", little).path).read_bytes() == b"little"
    big = InputRequest("x", f"s3://bucket/{place}/big.bin", account=account)
    with pytest.raises(AllranksError, match=r"its disk has 1\.\d MB, of which a part stays free"):
        provide(small_disk / "c", big)


def test_a_full_disk_before_and_during_the_download(
    tmp_path: Path, small_disk: Path, account: Account, place: str
) -> None:
    put(account, {f"{place}/big.bin": os.urandom(40 * MB), f"{place}/little": b"little"})
    with pytest.raises(AllranksError, match=r"cache needs 40.0 MB and has 29.9 MB free") as error:
        provide(
            small_disk / "c", InputRequest("x", f"s3://bucket/{place}/big.bin", account=account)
        )
    assert "--cache" in (error.value.hint or "")
    little = InputRequest("x", f"s3://bucket/{place}/little", account=account)
    assert Path(provide(small_disk / "c", little).path).read_bytes() == b"little"
    put(account, {f"{place}/half.bin": os.urandom(20 * MB)})
    half = InputRequest("y", f"s3://bucket/{place}/half.bin", account=account)
    cache_ = InputCache(
        small_disk / "c", None, lambda message: (small_disk / "other").exists() or fill()
    )

    def fill() -> None:
        (small_disk / "other").write_bytes(bytes(18 * MB))  # another program, after the check

    with pytest.raises(AllranksError, match="No space left"), cache_:
        cache_.provide(half)
    (small_disk / "other").unlink()
    assert Path(provide(small_disk / "c", half).path).stat().st_size == 20 * MB
    check_cache(small_disk / "c")


def test_eviction_takes_the_least_recently_used_and_keeps_held_entries(
    tmp_path: Path, account: Account, place: str
) -> None:
    put(account, {f"{place}/{name}/file": name.encode() * MB for name in "abc"})
    wanted = {n: InputRequest(n, f"s3://bucket/{place}/{n}", account=account) for n in "abc"}
    folder, limit = tmp_path / "c", 2_500_000
    with InputCache(folder, limit, print) as holding:
        first = Path(holding.provide(wanted["a"]).path)
        second = Path(provide(folder, wanted["b"], limit).path)
        third = Path(provide(folder, wanted["c"], limit).path)
        assert [each.exists() for each in (first, second, third)] == [True, False, True]
        put(account, {f"{place}/d/file": b"d" * 2 * MB})
        with pytest.raises(AllranksError, match="the other entries are in use"):
            provide(folder, InputRequest("d", f"s3://bucket/{place}/d", account=account), limit)
    found = provide(folder, InputRequest("d", f"s3://bucket/{place}/d", account=account), limit)
    assert Path(found.path, "file").read_bytes() == b"d" * 2 * MB
    assert not first.exists()


def test_damaged_files_are_fetched_again(tmp_path: Path, account: Account, place: str) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    wanted = InputRequest("data", f"s3://bucket/{place}", account=account)
    folder = Path(provide(tmp_path / "c", wanted).path)
    changed, gone = sorted(FILES)[5], sorted(FILES)[9]
    os.chmod((folder / changed).parent, 0o755)
    os.chmod(folder / changed, 0o644)
    (folder / changed).write_bytes(b"other")
    (folder / gone).unlink()
    found = provide(tmp_path / "c", wanted)
    assert found.moved == len(FILES[changed]) + len(FILES[gone])
    assert content(Path(found.path)) == FILES


def test_download_mode_links_into_a_folder_of_the_job(
    tmp_path: Path, account: Account, place: str
) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    wanted = InputRequest("data", f"s3://bucket/{place}", account=account)
    own = wanted._replace(copy=str(tmp_path / "own"))
    found = Path(provide(tmp_path / "c", own).path)
    assert content(found) == FILES
    (found / "d0" / "mine").write_text("mine")
    (found / sorted(FILES)[3]).unlink()
    assert content(Path(provide(tmp_path / "c", wanted).path)) == FILES


def test_sharded_inputs(tmp_path: Path, account: Account, place: str) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    shares = [
        content(Path(provide(tmp_path / "c", InputRequest(
            "data", f"s3://bucket/{place}", account=account, share=(node, 3))).path))
        for node in range(3)
    ]  # fmt: skip
    assert [len(share) for share in shares] == [14, 13, 13]
    assert {name: each for share in shares for name, each in share.items()} == FILES
    few = InputRequest("data", f"s3://bucket/{place}/d0", account=account, share=(50, 51))
    with pytest.raises(NotFound, match="fewer files than the job has nodes"):
        provide(tmp_path / "c", few)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://bucket/nothing/here", "nothing found at this address"),
        ("s3://no-such-bucket/x", "bucket 'no-such-bucket' not found"),
    ],
)
def test_missing_objects_and_buckets(tmp_path: Path, account: Account, uri: str, said: str) -> None:
    other = account.store._replace(bucket=uri.split("/")[2])
    with pytest.raises(NotFound, match=said) as error:
        provide(tmp_path / "c", InputRequest("x", uri, account=account._replace(store=other)))
    assert error.value.where == uri


def test_expired_credentials(tmp_path: Path, site: Site, account: Account) -> None:
    site.says = (400, b"<Error><Code>ExpiredToken</Code><Message>The token is old.</Message>")
    store = account.store._replace(endpoint=f"https://127.0.0.1:{site.port}")
    wanted = InputRequest(
        "x", "s3://bucket/x", account=account._replace(store=store), datastore="birds"
    )
    with pytest.raises(
        AllranksError, match="access to the datastore 'birds': The token is old"
    ) as error:
        provide(tmp_path / "c", wanted)
    assert "datastore create birds" in (error.value.hint or "")


def test_conflicting_names_are_refused(tmp_path: Path, account: Account, place: str) -> None:
    put(account, {f"{place}/both": b"file", f"{place}/both/file": b"in a folder"})
    with pytest.raises(AllranksError, match="'both' of the input x is both a file and a folder"):
        provide(tmp_path / "c", InputRequest("x", f"s3://bucket/{place}", account=account))
    put(account, {f"{place}-2/a.tar": b"", f"{place}-2/a.tgz": b""})
    wanted = InputRequest("x", f"s3://bucket/{place}-2", account=account, unpack=True)
    with pytest.raises(AllranksError, match="two files of the input x unpack to 'a'"):
        provide(tmp_path / "c", wanted)


def test_an_archive_entry_outside_its_folder_is_refused(
    tmp_path: Path, account: Account, place: str
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../../evil"))
    put(account, {f"{place}/evil.tar": packed.getvalue(), f"{place}/fine.tar": packed.getvalue()})
    wanted = InputRequest("x", f"s3://bucket/{place}", account=account, unpack=True)
    with pytest.raises(AllranksError, match="evil") as error:
        provide(tmp_path / "c", wanted)
    assert (error.value.where or "").startswith(f"s3://bucket/{place}/")
    assert not [*tmp_path.rglob("evil")]


# ---------------------------------------------------------------- https


def of_site(site: Site, path: str) -> InputRequest:
    uri = f"https://127.0.0.1:{site.port}{path}"
    store = Store("https", endpoint=f"https://127.0.0.1:{site.port}")
    return InputRequest("x", uri, account=Account(store))


def test_a_large_file_of_a_site_is_fetched_in_parts(tmp_path: Path, site: Site) -> None:
    site.files["/a dir/big.bin?v=2".replace(" ", "%20")] = big = os.urandom(30 * MB)
    found = provide(tmp_path / "c", of_site(site, "/a%20dir/big.bin?v=2"))
    assert Path(found.path).read_bytes() == big
    assert Path(found.path).name == "big.bin"
    assert sum("bytes=" in each for each in site.asked) == 4
    asked = len(site.asked)
    assert provide(tmp_path / "c", of_site(site, "/a%20dir/big.bin?v=2")).moved == 0
    assert len(site.asked) - asked == 1


def test_a_site_without_range_requests(tmp_path: Path, site: Site) -> None:
    site.files["/big.bin"] = big = os.urandom(30 * MB)
    site.ranges = False
    found = provide(tmp_path / "c", of_site(site, "/big.bin"))
    assert Path(found.path).read_bytes() == big


def test_a_site_with_weak_tags(tmp_path: Path, site: Site) -> None:
    site.files["/big.bin"] = big = os.urandom(30 * MB)
    site.tags["/big.bin"] = 'W/"weak"'
    found = provide(tmp_path / "c", of_site(site, "/big.bin"))
    assert Path(found.path).read_bytes() == big


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_store_is_retried(
    tmp_path: Path, site: Site, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than obstore itself retries."""
    monkeypatch.setattr(object_stores, "_RETRY", {**object_stores._RETRY, "max_retries": 0})
    site.files["/big.bin"] = big = os.urandom(30 * MB)
    said = (status, b"<Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>")
    site.busy = [None, *[said] * 3]  # the first asks for its size
    found = provide(tmp_path / "c", of_site(site, "/big.bin"))
    assert Path(found.path).read_bytes() == big
    assert site.busy == []


def test_a_missing_file_of_a_site(tmp_path: Path, site: Site) -> None:
    with pytest.raises(NotFound, match="nothing found at this address"):
        provide(tmp_path / "c", of_site(site, "/nothing"))


def test_a_source_that_keeps_changing_is_not_cached(tmp_path: Path, site: Site) -> None:
    site.files["/big.bin"] = os.urandom(30 * MB)

    class Restless(dict[str, str]):
        def get(self, *_: object) -> str:  # type: ignore[override]
            return f'"{len(site.asked)}"'

    site.tags = Restless()
    with pytest.raises(AllranksError, match="keeps changing"):
        provide(tmp_path / "c", of_site(site, "/big.bin"))
    assert not [*(tmp_path / "c").glob(f"*/{cache.MANIFEST}")]


# ---------------------------------------------------------------- azure


def test_azure_blobs(tmp_path: Path, azurite: int, place: str) -> None:
    endpoint = f"http://127.0.0.1:{azurite}/{ACCOUNT}"
    account = Account(Store("azure", "container", ACCOUNT, endpoint), {"account_key": KEY})
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    big = os.urandom(20 * MB)
    put(account, {f"{place}/big": big})
    uri = f"abfss://container@{ACCOUNT}.dfs.core.windows.net/{place}"
    found = provide(tmp_path / "c", InputRequest("x", uri, account=account))
    assert content(Path(found.path)) == {**FILES, "big": big}
    wrong = Account(account.store, {"account_key": "bm90IGl0"})
    with pytest.raises(AllranksError, match="the store refused access"):
        provide(tmp_path / "d", InputRequest("x", uri, account=wrong))
    nowhere = account._replace(store=account.store._replace(bucket="nowhere"))
    with pytest.raises(NotFound, match="bucket 'nowhere' not found"):
        provide(tmp_path / "d", InputRequest("x", uri, account=nowhere))


def test_resume_a_download_of_an_older_listing(
    tmp_path: Path, account: Account, wire: Wire, place: str
) -> None:
    big = os.urandom(160 * MB)
    put(account, {f"{place}/big.bin": big, f"{place}/gone.txt": b"gone"})
    wire.brought, wire.hold_after = 0, 130 * MB
    folder = tmp_path / "c"
    with mover(folder, f"s3://bucket/{place}", account) as child:
        assert wire.reached.wait(60)
        until(lambda: any(folder.glob("*.part/journal")))
        journal = next(folder.glob("*.part/journal"))
        until(lambda: journal.read_text().count("\n") >= 3)
        child.send_signal(signal.SIGKILL)
        child.wait()
    wire.go()
    obstore.delete(open_store(account, Address(account.store)), f"{place}/gone.txt")
    put(account, {f"{place}/new.txt": b"new"})
    found = provide(folder, InputRequest("x", f"s3://bucket/{place}", account=account))
    assert content(Path(found.path)) == {"big.bin": big, "new.txt": b"new"}
    assert found.moved <= 160 * MB - 3 * 8 * MB + 3
    assert not [*folder.glob("*.part")]


@pytest.mark.parametrize("container", ["public", "objects"])
def test_what_is_public_needs_no_credentials(
    container: str, azurite: int, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{azurite}/{ACCOUNT}"
    store = Store("azure", container, endpoint=url, account=ACCOUNT)
    put(Account(store, {"account_key": KEY}), {f"{place}/iris.csv": b"1,2\n", f"{place}/b": b"b"})
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    anybody = Account(store)
    file = f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/{place}/iris.csv"
    found = provide(tmp_path / "c", InputRequest("d", file, account=anybody))
    assert Path(found.path).read_bytes() == b"1,2\n"
    folder = InputRequest("d", file.rpartition("/")[0], account=anybody)
    if container == "public":
        assert len(content(Path(provide(tmp_path / "d", folder).path))) == 2
    else:
        with pytest.raises(AllranksError, match=r"no credentials|refused access"):
            provide(tmp_path / "d", folder)


def test_what_is_private_says_so(azurite: int, tmp_path: Path, place: str) -> None:
    url = f"http://127.0.0.1:{azurite}/{ACCOUNT}"
    store = Store("azure", "container", endpoint=url, account=ACCOUNT)
    put(Account(store, {"account_key": KEY}), {f"{place}/x": b"x"})
    wanted = f"abfss://container@{ACCOUNT}.dfs.core.windows.net/{place}"
    with pytest.raises(AllranksError, match=r"no credentials|refused access") as caught:
        provide(tmp_path / "c", InputRequest("d", wanted, account=Account(store)))
    assert "datastore create" in (caught.value.hint or "")
