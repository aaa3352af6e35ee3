"""Inputs with `mode: stream`, which ranks read over HTTP from their node."""

from __future__ import annotations

import http.client
import io
import json
import os
import pwd
import socket
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.agent.data import http_stream
from allranks.agent.data.http_stream import PART, Streams, _parse_range
from allranks.agent.data.input_request import InputRequest
from allranks.agent.data.input_source import Source
from allranks.agent.data.object_stores import open_store
from allranks.core.data.addresses import Account, Address, Store
from allranks.errors import AllranksError
from tests.frameworks.environments import environment
from tests.stores.servers import Site, Wire, put
from tests.support import Allranks, until

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.timeout(900)]
MB = 1_000_000

Serve = Callable[[InputRequest], str]


@pytest.fixture
def read(tmp_path: Path) -> Path:
    return tmp_path / "read.json"


@pytest.fixture
def serve(read: Path) -> Iterator[Serve]:
    """Serve an input and return its URL."""
    with read.open("wb") as file:
        streams = Streams(file.fileno())
        yield lambda wanted: str(streams.add(Source(wanted))["path"])
        streams.close()


def request(url: str, **headers: str) -> urllib.request.Request:
    return urllib.request.Request(url, headers=headers)


def get(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(request(url, **headers)) as answer:
        return bytes(answer.read())


FILES = {f"d{n % 2}/a {n} ü'?#%.tar": os.urandom(n * 50_000) for n in range(6)}


def test_every_file_by_its_url(account: Account, place: str, serve: Serve, read: Path) -> None:
    put(account, {f"{place}/{name}": content for name, content in FILES.items()})
    base = serve(InputRequest("my shards", f"s3://bucket/{place}", account=account))
    urls = get(base).decode().split()
    assert [get(url) for url in urls] == [FILES[name] for name in sorted(FILES)]
    size = sum(map(len, FILES.values()))
    wanted = [{"streamed": "my shards", "reads": 6, "size": size, "failed": ""}]
    until(lambda: json.loads(read.read_text()) == wanted)


def test_lost_connections_to_the_store_are_unseen_by_readers(
    account: Account, wire: Wire, place: str, serve: Serve
) -> None:
    big = os.urandom(5 * PART + 17)
    put(account, {f"{place}/big.tar": big})
    url = serve(InputRequest("x", f"s3://bucket/{place}/big.tar", account=account))
    assert url.endswith("/x/big.tar")
    wire.cut_after, wire.cuts = 2 * MB, 5
    assert get(url) == big
    assert wire.cuts == 0


def test_range_requests(tmp_path: Path, serve: Serve) -> None:
    content = os.urandom(PART + 1000)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_bytes(content)
    (tmp_path / "d/empty").touch()
    base = serve(InputRequest("d", source=str(tmp_path / "d")))
    assert get(f"{base}/x", Range="bytes=10-19") == content[10:20]
    assert get(f"{base}/x", Range=f"bytes={PART - 5}-") == content[PART - 5 :]
    assert get(f"{base}/x", Range="bytes=-7") == content[-7:]
    assert get(f"{base}/x", **{"Range": "bytes=0-1", "If-Range": '"other"'}) == content
    assert get(f"{base}/empty") == b""
    for ignored in ("lines=1-2", "bytes=0-1,4-5", "bytes=5-2"):
        with urllib.request.urlopen(request(f"{base}/x", Range=ignored)) as answer:
            assert (answer.status, answer.read()) == (200, content)
    with urllib.request.urlopen(request(f"{base}/x", Range="bytes=0-1")) as answer:
        assert (answer.status, answer.headers["Content-Range"]) == (206, f"bytes 0-1/{PART + 1000}")
    (tmp_path / "d" / os.fsdecode(b"no utf-8 \xff")).write_bytes(b"all the same")
    again = serve(InputRequest("again", source=str(tmp_path / "d")))
    assert b"all the same" in [get(url) for url in get(again).decode().split()]
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        get(f"{base}/x", Host="evil.example:80")
    refused.value.close()
    for wrong, status in (("x", 416), ("nope", 404), ("../d/x", 404)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(f"{base}/{wrong}", Range=f"bytes={len(content)}-")
        assert caught.value.code == status
        caught.value.close()
    at = urlsplit(base)
    with closing(http.client.HTTPConnection(at.netloc)) as kept:
        kept.connect()
        kept.auto_open = 0
        for _ in range(3):  # by one connection
            kept.request("HEAD", f"{at.path}/x")
            answer = kept.getresponse()
            assert (answer.getheader("Content-Length"), answer.read()) == (str(len(content)), b"")


@given(st.integers(1, 99), st.integers(0, 120), st.integers(0, 120))
def test_a_parse_range_is_what_a_list_would_give(size: int, first: int, last: int) -> None:
    data = [*range(size)]
    whole = None if last < first else data[first : last + 1]
    for header, wanted in (
        (f"bytes={first}-{last}", whole),
        (f"bytes={first}-", data[first:]),
        (f"bytes=-{last}", data[-last:] if last else []),
    ):
        found = _parse_range(header, size)
        assert (data[found[0] : found[1]] if found else None) == wanted
    assert _parse_range("lines=1-2", size) is None
    assert _parse_range("bytes=0-1,3-4", size) is None


def test_a_changed_file_fails_the_read(
    account: Account, place: str, serve: Serve, read: Path
) -> None:
    put(account, {f"{place}/a": b"one", f"{place}/b": b"x"})
    base = serve(InputRequest("x", f"s3://bucket/{place}", account=account))
    put(account, {f"{place}/a": b"two"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{base}/a")
    with caught.value as error:
        assert (error.code, b"'a' changed after the start" in error.read()) == (502, True)
    assert get(f"{base}/b") == b"x"
    assert "changed" in json.loads(read.read_text())[0]["failed"]


def test_a_deleted_file_fails_the_read(account: Account, place: str, serve: Serve) -> None:
    put(account, {f"{place}/a": b"one", f"{place}/b": b"x"})
    base = serve(InputRequest("x", f"s3://bucket/{place}", account=account))
    obstore.delete(open_store(account, Address(account.store)), f"{place}/a")
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{base}/a")
    with caught.value as error:
        assert b"'a' was deleted after the start of the job" in error.read()


def test_a_site_with_weak_tags(site: Site, serve: Serve) -> None:
    site.files["/x.tar"] = before = b"a" * 10 * PART
    site.tags["/x.tar"] = 'W/"one"'
    wanted = InputRequest(
        "x",
        f"https://127.0.0.1:{site.port}/x.tar",
        account=Account(Store("https", endpoint=f"https://127.0.0.1:{site.port}")),
    )
    url = serve(wanted)
    assert get(url) == before
    site.files["/x.tar"], site.tags["/x.tar"] = b"b" * 10 * PART, 'W/"two"'
    with pytest.raises(urllib.error.HTTPError, match="502") as caught:
        get(url)
    caught.value.close()


def test_a_slow_reader_does_not_time_out(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is between requests, not for reading a response."""
    monkeypatch.setattr(http_stream._Handler, "timeout", 0.2)
    content = os.urandom(8 * PART)
    (tmp_path / "x").write_bytes(content)
    at = urlsplit(serve(InputRequest("x", source=str(tmp_path / "x"))))
    with closing(http.client.HTTPConnection(at.netloc)) as slow:
        slow.request("GET", at.path)
        answer = slow.getresponse()
        assert not threading.Event().wait(1.0)
        assert answer.read() == content


def test_a_failure_in_the_middle_closes_the_connection(tmp_path: Path, serve: Serve) -> None:
    file = tmp_path / "x"
    file.write_bytes(os.urandom(12 * PART))
    at = urlsplit(serve(InputRequest("x", source=str(file))))
    with closing(http.client.HTTPConnection(at.netloc)) as connection:
        connection.request("GET", at.path)
        answer = connection.getresponse()
        answer.read(100)
        file.write_bytes(b"other")
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


def test_a_site_without_range_requests_is_refused(site: Site, serve: Serve) -> None:
    site.files["/x.tar"] = b"x" * 100
    wanted = InputRequest(
        "x",
        f"https://127.0.0.1:{site.port}/x.tar",
        account=Account(Store("https", endpoint=f"https://127.0.0.1:{site.port}")),
    )
    assert get(serve(wanted)) == b"x" * 100
    site.ranges = False
    with pytest.raises(AllranksError, match="does not support range requests") as caught:
        serve(wanted)
    assert "ro_mount" in (caught.value.hint or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_other_users_of_the_machine_are_refused(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "x").write_bytes(b"mine")
    url = serve(InputRequest("x", source=str(tmp_path / "x")))
    assert get(url) == b"mine"
    at = urlsplit(url)
    # The socket belongs to the user that created it.
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        theirs = socket.socket()
    finally:
        os.seteuid(0)
    with theirs:
        theirs.connect((at.hostname, at.port))
        theirs.sendall(f"GET {at.path} HTTP/1.0\r\n\r\n".encode())
        try:
            said = theirs.recv(1000)
        except ConnectionResetError:
            said = b""
    assert said == b""


READS = """
import os, sys, urllib.request
import webdataset
urls = urllib.request.urlopen(sys.argv[1]).read().decode().split()
rank = os.environ["RANK"]
mine = webdataset.WebDataset(urls, shardshuffle=False, nodesplitter=lambda urls: urls)
for sample in mine:
    print("sample", rank, sample["__key__"], sample["txt"].decode(), flush=True)
"""


def shard(numbers: range) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for number in numbers:
            entry = tarfile.TarInfo(f"{number:03d}.txt")
            content = f"text of {number}".encode()
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def test_webdataset_reads_shards_of_a_bucket(
    allranks: Allranks, account: Account, place: str, home: Path, tmp_path: Path
) -> None:
    """Sharded between two nodes, without a shard on disk."""
    put(account, {f"{place}/{n}.tar": shard(range(n * 10, n * 10 + 10)) for n in range(4)})
    words = ["--type", "s3", "--bucket", "bucket", "--endpoint", account.store.endpoint]
    env = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "hush-hush"}
    made = allranks("datastore", "create", "b", *words, "--credentials-from-env", env=env)
    assert made.returncode == 0, made.stderr
    (tmp_path / "read.py").write_text(READS)
    spec = {
        "type": "command",
        "code": "./read.py",
        "command": f"{environment('stores')}/bin/python read.py ${{{{inputs.shards}}}}",
        "inputs": {
            "shards": {
                "path": f"azureml://datastores/b/paths/{place}",
                "mode": "stream",
                "sharded": True,
            }
        },
        "resources": {"instance_count": 2},
        "distribution": {"type": "pytorch"},
    }
    (tmp_path / "job.yml").write_text(json.dumps(spec))
    done = allranks("job", "create", "-f", tmp_path / "job.yml", "--name", "r", "--stream")
    assert done.returncode == 0, done.stderr
    lines = [line.split(None, 3) for line in done.stdout.splitlines() if line.startswith("sample")]
    seen = {(int(rank), int(key)): text for _, rank, key, text in lines}
    assert seen == {(n // 10 % 2, n): f"text of {n}" for n in range(40)}
    notes = [
        each["data"]["data"]
        for each in json.loads(allranks("job", "events", "r", "--json").stdout)
        if "streamed" in each["data"].get("data", {})
    ]
    assert [(each["reads"], each["failed"]) for each in notes] == [(2, "")] * 2
    assert not [*home.rglob("*.tar")]
