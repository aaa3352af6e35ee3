"""Whether a file that was changed in place is a part of what was to be written."""

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest

from allranks.agent.state.torn_files import Deaths, Left, left, set_aside
from allranks.core.data.state_manifest import Entry

OLD = os.urandom(5000)


def what_is_left(folder: Path, old: bytes, new: bytes, name: str = "ckpt") -> Left:
    path = folder / "file"
    path.write_bytes(new)
    before = Entry("file", hashlib.sha256(old).hexdigest(), len(old))
    with path.open("rb") as file:
        return left(f"shared/{name}", file, before)


def archive(size: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("weights", os.urandom(size))
    return data.getvalue()


def test_a_shorter_file_is_torn(tmp_path):
    assert what_is_left(tmp_path, OLD, OLD[:4000]) is Left.TORN
    assert what_is_left(tmp_path, OLD, b"") is Left.TORN


def test_a_log_grows_and_a_checkpoint_of_the_same_size_is_whole(tmp_path):
    assert what_is_left(tmp_path, OLD, OLD + b"another line") is Left.GROWING
    assert what_is_left(tmp_path, OLD, os.urandom(5000)) is Left.WHOLE


@pytest.mark.parametrize("size", [100, 200_000])
def test_an_archive_shows_it(tmp_path, size):
    whole = archive(size)
    assert what_is_left(tmp_path, OLD * 100, whole) is Left.WHOLE  # also if it is shorter
    assert what_is_left(tmp_path, OLD, whole[: len(whole) // 2]) is Left.TORN  # or longer


def test_databases_recover_by_themselves(tmp_path):
    assert what_is_left(tmp_path, OLD, b"SQLite format 3\0" + bytes(100)) is Left.GROWING
    assert what_is_left(tmp_path, OLD, bytes(100), name="study.db-wal") is Left.GROWING


def test_the_last_kill_counts():
    deaths = Deaths()
    assert (deaths.begun, deaths.killed) == (False, None)
    deaths.kill(7.0)
    deaths.kill(6.0)
    assert (deaths.begun, deaths.killed) == (True, 7.0)


def test_the_files_of_a_checkpoint_go_back_together():
    files = {"a/model": Left.TORN, "a/optimizer": Left.WHOLE, "a/log": Left.GROWING}
    assert set_aside({**files, "b/model": Left.WHOLE}) == {"a/model", "a/optimizer"}
    assert set_aside({"b/model": Left.WHOLE}) == set()
