"""Uploads of files and folders to a real server: complete, once, and whatever happens meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks import http_client
from allranks.core.data.upload_manifest import Link, Manifest
from allranks.errors import DataTooLarge, MissingData, NotFound, ServerError, UsageError
from allranks.http_client import Client
from allranks.sdk.connection import reopened
from allranks.sdk.upload import digests, inputs, listing, send
from allranks.sdk.upload.send import Uploaded, upload
from allranks.store.files import same_data
from allranks.store.files.blobs import Blobs
from allranks.store.files.changes import Change
from allranks.store.files.uploads import Uploads
from tests.proxy import Cutting
from tests.server.serving import Served, served

KB, MB = 1 << 10, 1 << 20

pytestmark = pytest.mark.medium


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "client"))
    with served(tmp_path / "home") as found:
        yield found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "da ta"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "large").write_bytes(random.Random(1).randbytes(3 * MB))
    (folder / "sub" / "same").write_bytes((folder / "large").read_bytes())
    for number in range(40):
        (folder / "sub" / f"{number}").write_bytes(bytes([number]) * number)
    Path(os.fsdecode(b"%s/sub/deep/\xff\n'" % os.fsencode(folder))).write_bytes(b"odd")
    (folder / "run.sh").write_bytes(b"true")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/7")
    return folder


def connecting(server: Served) -> Callable[[], Client]:
    return lambda: Client(server.url, server.token())


def sent(server: Served, path: Path, **options: object) -> Uploaded:
    return upload(connecting(server), path, **options)  # type: ignore[arg-type]


def place(server: Served, made: Uploaded) -> Path:
    return server.home.data / made.path.partition("/paths/")[2]


def content(root: Path) -> dict[bytes, object]:
    """All that is below a folder, by name."""
    found: dict[bytes, object] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in folders + files:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, os.fsencode(root))
            if os.path.islink(path):
                found[key] = os.readlink(path)
            elif os.path.isdir(path):
                found[key] = "folder"
            else:
                digest = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
                found[key] = (digest, os.access(path, os.X_OK) and name == b"run.sh")
    return found


def blobs(server: Served) -> list[Path]:
    return [path for path in server.home.blobs.rglob("*") if path.is_file()]


def test_a_folder_arrives_as_it_is(server: Served, data: Path) -> None:
    made = sent(server, data)
    assert content(place(server, made)) == content(data)
    assert made.path.endswith("/files/da ta")
    assert made.files == 44
    # The content that two files have is sent once.
    assert made.sent < 3 * MB + 10 * KB


def test_connections_are_kept(server: Served, data: Path) -> None:
    """Far away each new one costs a round trip."""
    opened = list[Client]()

    def connect() -> Client:
        opened.append(connecting(server)())
        return opened[-1]

    upload(connect, data)
    assert len(opened) <= 2  # one for the large file, one for the others


def test_a_single_file(server: Served, data: Path) -> None:
    made = sent(server, data / "large")
    assert made.is_file
    assert place(server, made).read_bytes() == (data / "large").read_bytes()


def test_nothing_is_sent_twice_and_only_what_changed(server: Served, data: Path) -> None:
    first = sent(server, data)
    assert sent(server, data) == first._replace(sent=0)
    (data / "sub" / "9").write_bytes(b"new")
    changed = sent(server, data)
    assert changed.path != first.path
    assert changed.sent < 10 * KB
    assert content(place(server, changed)) == content(data)
    assert (place(server, first) / "sub" / "9").read_bytes() == b"\t" * 9


@pytest.mark.parametrize("change", ["content", "new", "gone", "link", "kind"])
def test_an_upload_that_a_job_has_changed_is_noticed_and_made_again(
    server: Served, data: Path, change: str
) -> None:
    first = sent(server, data)
    top = place(server, first)
    other = sent(server, data / "sub")  # shares contents with it
    for folder in (top, top / "sub", top / "empty"):
        assert folder.stat().st_mode & 0o222 == 0
        folder.chmod(0o755)
    if change == "content":
        (top / "sub" / "9").chmod(0o644)
        (top / "sub" / "9").write_bytes(b"evil bits")
    elif change == "new":
        (top / "empty" / "new").touch()
    elif change == "gone":
        (top / "sub" / "9").unlink()
    elif change == "link":
        (top / "link").unlink()
        (top / "link").symlink_to("sub/8")
    else:
        (top / "sub" / "9").unlink()
        (top / "sub" / "9").mkdir()
    uploads = Uploads(server.home.uploads, Blobs(server.home.blobs))
    with pytest.raises(MissingData, match="was changed after its upload"):
        uploads.require_unchanged({"path": first.path})
    again = sent(server, data)
    assert again.path == first.path
    assert again.sent < 10 * KB
    assert content(place(server, again)) == content(data)
    uploads.require_unchanged({"path": again.path})
    sent(server, data / "sub")
    assert content(place(server, other)) == content(data / "sub")


def test_jobs_of_a_list_look_at_their_data_once_and_hold_up_no_other(
    server: Served, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"data": {"type": "uri_folder", "path": sent(server, data).path}}
    look, looks = Uploads._change, list[str]()

    def looking(uploads: Uploads, digest: str, manifest: Manifest) -> Change | None:
        looks.append(digest)
        server.submit(f"other-{len(looks)}")
        return look(uploads, digest, manifest)

    monkeypatch.setattr(Uploads, "_change", looking)
    specs = ({"name": f"j{number}", "command": "true", "inputs": inputs} for number in range(3))
    jobs = [{"spec": spec, "in_place": "/"} for spec in specs]
    answer = server.people.post("/api/v1/jobs/list", json=jobs)
    assert answer.status_code == 201, answer.text
    assert len(looks) == 1


@pytest.mark.parametrize("text", [None, b"", b"[]", b'{"name": 1, "files": [[[], 0, ""]]}'])
def test_an_upload_whose_manifest_was_changed_is_noticed(
    server: Served, data: Path, text: bytes | None
) -> None:
    made = sent(server, data)
    manifest = place(server, made).parents[1] / "manifest.json"
    manifest.unlink()
    if text is not None:
        manifest.write_bytes(text)
    uploads = Uploads(server.home.uploads, Blobs(server.home.blobs))
    with pytest.raises(MissingData, match="was changed after its upload"):
        uploads.require_unchanged({"path": made.path})
    assert content(place(server, sent(server, data))) == content(data)


def test_an_upload_whose_times_are_none_is_noticed(server: Served, data: Path) -> None:
    made = sent(server, data)
    (place(server, made).parents[1] / "times.json").write_text("null")
    uploads = Uploads(server.home.uploads, Blobs(server.home.blobs))
    with pytest.raises(MissingData, match="was changed after its upload"):
        uploads.require_unchanged({"path": made.path})
    assert content(place(server, sent(server, data))) == content(data)


def test_an_upload_whose_times_alone_differ_change(server: Served, data: Path) -> None:
    made = sent(server, data)
    os.utime(place(server, made) / "large", ns=(1, 1))
    assert sent(server, data) == made._replace(sent=0)


def test_a_sparse_file_is_neither_sent_nor_stored_as_zeros(server: Served, data: Path) -> None:
    sparse = data / "sparse"
    with sparse.open("wb") as file:
        file.seek(20 * MB)
        file.write(b"in the middle")
        file.truncate(64 * MB)
    made = sent(server, sparse)
    assert made.sent < MB
    there = place(server, made)
    assert there.read_bytes() == sparse.read_bytes()
    assert there.stat().st_blocks * 512 < MB


def test_what_is_no_file_is_told_and_loops_end(server: Served, data: Path) -> None:
    os.mkfifo(data / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(data / "socket"))
    outside = data.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("from outside")
    (outside / "back").symlink_to(data)
    (data / "out").symlink_to(outside)
    (data / "self").symlink_to(data / "self")
    (data / "gone").symlink_to("/no/such/file")
    notes: list[str] = []
    made = sent(server, data, note=notes.append)
    assert (place(server, made) / "out" / "file").read_text() == "from outside"
    assert not list(place(server, made).glob("out/back*"))
    told = " ".join(notes)
    assert all(name in told for name in ("pipe", "socket", "self", "gone", "out/back"))


def test_bad_paths(server: Served, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound):
        sent(server, data / "absent")
    with pytest.raises(UsageError):
        sent(server, Path("/dev/null"))
    monkeypatch.setattr(send, "MOST_BYTES", MB)
    with pytest.raises(DataTooLarge) as refused:
        sent(server, data)
    assert "--allow-large-data" in (refused.value.hint or "")
    monkeypatch.setattr(listing, "MOST_FILES", 10)
    with pytest.raises(DataTooLarge, match="more than 10 files"):
        sent(server, data)
    assert not blobs(server)
    assert sent(server, data, allow_large=True).files == 44


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_rights_is_told(server: Served, data: Path) -> None:
    (data / "large").chmod(0)
    with pytest.raises(UsageError, match="permission denied"):
        sent(server, data)


def test_a_file_that_changes_while_it_is_sent_is_told(
    server: Served, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = digests.Digests.of

    def then_change(self: digests.Digests, *args: object) -> dict[str, str]:
        found = hashes(self, *args)  # type: ignore[arg-type]
        (data / "large").write_bytes(b"x" * 3 * MB)
        (data / "sub" / "same").unlink()
        return found

    monkeypatch.setattr(digests.Digests, "of", then_change)
    with pytest.raises(UsageError, match="changed while it was uploaded"):
        sent(server, data)
    assert not list(server.home.uploads.glob("*"))
    assert not [path for path in blobs(server) if path.stat().st_size > MB]


@pytest.mark.parametrize("content", [b"x" * 30, b"x"])
def test_a_small_file_that_changes_while_it_is_sent_is_told(
    server: Served, data: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    hashes = digests.Digests.of

    def then_change(self: digests.Digests, *args: Any) -> dict[str, str]:
        by_path = hashes(self, *args)
        (data / "sub" / "30").write_bytes(content)
        return by_path

    monkeypatch.setattr(digests.Digests, "of", then_change)
    with pytest.raises(UsageError, match="changed while it was uploaded") as caught:
        sent(server, data)
    assert caught.value.where == str(data / "sub" / "30")
    assert not list(server.home.uploads.glob("*"))


def test_a_full_disk_is_told(server: Served, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = send.json.loads

    def full(text: bytes) -> object:
        answer = usage(text)
        return {**answer, "free": 10} if isinstance(answer, dict) and "free" in answer else answer

    monkeypatch.setattr(http_client.json, "loads", full)
    with pytest.raises(ServerError, match="disk is full"):
        sent(server, data)


def test_the_server_sees_the_same_data_only_if_it_does(server: Served, data: Path) -> None:
    with connecting(server)() as client:
        secret = server.home.root / "token"
        assert inputs.unproven(client, [str(data), str(data / "large"), str(secret)]) == [
            str(secret)
        ]
        assert inputs.unproven(client, ["/no/such/path"]) == ["/no/such/path"]


def test_another_folder_of_the_same_name_is_not_the_same(data: Path) -> None:
    copy = data.parent / "copy"
    shutil.copytree(data, copy, symlinks=True)
    ranges = same_data.pick(str(data))

    def seen(path: Path) -> str:
        return same_data.fingerprint(str(path), "nonce", ranges)

    assert seen(copy) == seen(data)
    (copy / "sub" / "9").write_bytes(b"9 bytes..")  # of the same size, at another time
    assert seen(copy) != seen(data)
    empty = data.parent / "none"
    empty.mkdir()
    assert same_data.fingerprint(str(empty), "", []) != same_data.fingerprint(str(data), "", [])


def test_an_answer_without_the_data_proves_nothing(server: Served, data: Path) -> None:
    with connecting(server)() as client:
        challenge = client.json("POST", "/api/v1/uploads/challenges", [str(data)])[0]
        wrong = {"nonce": challenge["nonce"], "sealed": challenge["sealed"], "digest": "0" * 64}
        assert client.json("POST", "/api/v1/uploads/proofs", [wrong]) == [False]


def test_an_upload_that_is_there_is_not_sent_again_without_its_blobs(
    server: Served, data: Path
) -> None:
    """As after a restore, or where the datastore is on another disk than the blobs."""
    first = sent(server, data)
    shutil.rmtree(server.home.blobs)
    assert sent(server, data) == first._replace(sent=0)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secrets", "sub/../../x"])
def test_a_link_that_leads_out_is_refused(server: Served, target: str) -> None:
    text = Manifest("evil", links=[Link("link", target)]).dump()
    digest = hashlib.sha256(text).hexdigest()
    with connecting(server)() as client:
        head = json.dumps([[digest, len(text)]]).encode()
        client.call("PUT", "/api/v1/blobs/pack", head + b"\n" + text)
        with pytest.raises(UsageError, match="malformed manifest"):
            client.json("POST", "/api/v1/uploads", {"manifest": digest})
    assert not server.home.uploads.exists()


@pytest.fixture
def early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is sent while it is read, in small pieces; the first arrives before it is read.
    Its hash is kept at once."""
    file, arrived = tmp_path / "early", threading.Event()
    file.write_bytes(random.Random(2).randbytes(2 * MB))
    put, pieces = send._Sender._put, digests.pieces

    def signalling(*args: Any) -> bool:
        complete = put(*args)
        arrived.set()
        return complete

    def waiting(*args: Any) -> Iterator[bytes]:
        assert arrived.wait(60)
        yield from pieces(*args)

    monkeypatch.setattr(send._Sender, "_put", signalling)
    monkeypatch.setattr(digests, "pieces", waiting)
    monkeypatch.setattr(digests, "_RECENT_SECONDS", -60.0)
    monkeypatch.setattr(same_data, "SAMPLED", MB)
    for name in ("_PIECE", "_LARGEST"):
        monkeypatch.setattr(send, name, 256 * KB)
    return file


def test_a_large_file_is_sent_while_it_is_read(server: Served, early: Path) -> None:
    made = sent(server, early)
    assert made.sent == 2 * MB
    assert place(server, made).read_bytes() == early.read_bytes()
    assert not [path for path in blobs(server) if path.name.endswith(".part")]
    # What the server may have is not sent before that is known.
    again = early.parent / "again" / early.name
    again.parent.mkdir()
    shutil.copy(early, again)
    assert sent(server, again) == made._replace(sent=0)


@pytest.mark.parametrize("end", ["while it is read", "when it was read"])
def test_what_was_sent_of_a_file_while_it_was_read_is_kept(
    server: Served, early: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Also if only the hash was kept."""
    left = [True] * 3
    with monkeypatch.context() as patched:
        put = send._Sender._put

        def failing(*args: Any) -> bool:
            if not left:
                raise ServerError("the test ends it")
            left.pop()
            return put(*args)

        def fail(*args: Any) -> None:
            raise ServerError("the test ends it")

        if end == "while it is read":
            patched.setattr(send._Sender, "_put", failing)
        else:
            patched.setattr(send._Sender, "_large", fail)
        with pytest.raises(ServerError, match="the test ends it"):
            sent(server, early)
    (part,) = blobs(server)
    size = part.stat().st_size
    assert size
    made = sent(server, early)
    assert made.sent == 2 * MB - size
    assert place(server, made).read_bytes() == early.read_bytes()
    assert not [path for path in blobs(server) if path.name.endswith(".part")]


def test_a_file_that_changes_while_it_is_sent_and_read_is_sent_again(
    server: Served, early: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, changes = send._Sender._put, [b"new"]

    def changing(*args: Any) -> bool:
        complete = put(*args)
        if changes:
            with early.open("r+b") as file:
                file.write(changes.pop())
        return complete

    monkeypatch.setattr(send._Sender, "_put", changing)
    made = sent(server, early)
    assert place(server, made).read_bytes() == early.read_bytes()


def test_random_cuts_lose_and_repeat_nothing(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reopened, "_PAUSES", (0.0,) * 100)
    cuts = 0
    for seed in range(8):
        # Also pieces that are longer than what passes.
        monkeypatch.setattr(send, "_PIECE", (256 * KB, 16 * MB)[seed % 2])
        monkeypatch.setattr(same_data, "SAMPLED", (MB, 32 * MB)[seed // 2 % 2])
        cuts += cut_at_random(server, tmp_path / str(seed), seed)
    assert cuts > 4, "the links were not cut"


def cut_at_random(server: Served, folder: Path, seed: int) -> bool:
    """Upload through links that are cut after random amounts; then all is there, once. Whether a
    link was cut."""
    chance = random.Random(seed)
    folder.mkdir()
    for number in range(chance.randrange(1, 60)):
        (folder / str(number)).write_bytes(chance.randbytes(chance.randrange(20 * KB)))
    (folder / "large").write_bytes(chance.randbytes(chance.randrange(MB, 4 * MB)))
    total = sum(path.stat().st_size for path in folder.iterdir())
    with Cutting(server.url, chance, 2 * MB) as proxy:
        made = upload(lambda: Client(proxy.url, server.token()), folder)
    assert content(place(server, made)) == content(folder), seed
    assert made.sent <= total + len(os.listdir(folder)) * 200, seed
    assert not [path for path in blobs(server) if path.name.endswith(".part")], seed
    return proxy.reached.is_set()


def collected(server: Served) -> list[str]:
    """The kinds of things that `gc` removes, of those that were not used for a day."""
    day = time.time() - 86400
    for path in [*server.home.blobs.rglob("*"), *server.home.uploads.glob("*")]:
        if not path.is_symlink():
            os.utime(path, (day, day))
    answer = server.people.post("/api/v1/gc", json={"older_than_seconds": 0}).json()
    assert not answer["failed"]
    return sorted({item["kind"] for item in answer["items"]})


def test_gc_knows_what_uses_an_upload(server: Served, data: Path) -> None:
    named, used, other = (sent(server, data / name) for name in ("sub", "large", "run.sh"))
    asset = {"name": "sub", "path": named.path}
    assert server.people.post("/api/v1/data", json=asset).status_code == 201
    inputs_of = {"d": {"path": used.path, "type": "uri_file"}}
    spec = {"name": "j", "command": "true", "environment": "current", "inputs": inputs_of}
    body = {"spec": spec, "in_place": "/"}
    assert server.people.post("/api/v1/jobs", json=body).status_code == 201
    assert collected(server) == ["code", "uploads"]
    assert place(server, named).exists()
    assert place(server, used).exists()
    assert not place(server, other).exists()
    assert server.people.delete("/api/v1/data/sub:1").status_code == 200
    assert collected(server) == ["code", "uploads"]
    # What was removed is not there for a job any more, and is sent again.
    again = server.people.post("/api/v1/data", json=asset)
    assert again.json()["error"] == "missing_data"
    assert sent(server, data / "sub").path == named.path


def test_gc_removes_what_was_left_in_half(server: Served) -> None:
    half = server.home.uploads / ".coming-0123"
    half.mkdir(parents=True)
    day = time.time() - 86400
    os.utime(half, (day, day))
    with connecting(server)() as client:
        client.call("PUT", f"/api/v1/blobs/{'0' * 64}/part?offset=0&size=9", b"half")
    assert collected(server) == ["code", "unfinished uploads"]
    assert not blobs(server)
