"""Whether a file that was changed in place is a part of what was to be written."""

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest

from allranks.agent.state.torn_files import Deaths, Left, left, set_aside
from allranks.plan.data.state_manifest import Entry

OLD = os.urandom(5000)


def torn(folder: Path, old: bytes, new: bytes, name: str = "ckpt", long: bool = False) -> bool:
    path = folder / "file"
    path.write_bytes(new)
    before = Entry("file", hashlib.sha256(old).hexdigest(), len(old))
    with path.open("rb") as file:
        return left(f"shared/{name}", file, before, long) is Left.TORN


def archive(size: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("weights", os.urandom(size))
    return data.getvalue()


def test_a_shorter_file_is_torn(tmp_path):
    assert torn(tmp_path, OLD, OLD[:4000])
    assert torn(tmp_path, OLD, b"")
    assert torn(tmp_path, OLD, os.urandom(10), long=True)


def test_a_log_that_grew_is_not(tmp_path):
    assert not torn(tmp_path, OLD, OLD + b"another line")


def test_another_content_is_unless_it_was_open_for_long(tmp_path):
    assert torn(tmp_path, OLD, os.urandom(6000))
    assert not torn(tmp_path, OLD, os.urandom(6000), long=True)


@pytest.mark.parametrize("size", [100, 200_000])
def test_an_archive_shows_it(tmp_path, size):
    whole = archive(size)
    assert not torn(tmp_path, OLD * 100, whole)  # also if it is shorter
    assert torn(tmp_path, OLD, whole[: len(whole) // 2])


def test_databases_recover_by_themselves(tmp_path):
    assert not torn(tmp_path, OLD, b"SQLite format 3\0" + bytes(100))
    assert not torn(tmp_path, OLD, bytes(100), name="study.db-wal")


def test_deaths_are_a_span():
    deaths = Deaths()
    deaths.begin(5.0)
    assert (deaths.began, deaths.killed) == (5.0, None)
    deaths.kill(7.0)
    deaths.kill(6.0)
    deaths.begin(8.0)
    assert (deaths.began, deaths.killed) == (5.0, 7.0)


def test_the_files_of_a_checkpoint_go_back_together():
    files = {"a/model": Left.TORN, "a/optimizer": Left.WHOLE, "a/log": Left.GROWING}
    assert set_aside({**files, "b/model": Left.WHOLE}) == {"a/model", "a/optimizer"}
    assert set_aside({"b/model": Left.WHOLE}) == set()
