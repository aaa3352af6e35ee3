"""Contents of data and code: equal for equal content only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allranks.snapshot import chunks
from allranks.snapshot.take import take_snapshot
from allranks.store.files import contents as module
from allranks.store.files.blobs import Blobs
from allranks.store.files.contents import Contents


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(Blobs(tmp_path / "blobs"))


def folder(path: Path, files: dict[str, str]) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


FILES = {"a.txt": "1", "b/c d; echo.txt": "22", "b/x": ""}


def test_copies_are_equal(contents: Contents, tmp_path: Path):
    one, two = folder(tmp_path / "one", FILES), folder(tmp_path / "two", FILES)
    assert contents.of_data(one) == contents.of_data(two) is not None
    assert contents.of_data(one / "a.txt") == contents.of_data(two / "a.txt")
    assert contents.of_data(tmp_path / "none") is None


@pytest.mark.parametrize("large", [False, True])
def test_every_change_is_seen(
    contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
):
    if large:
        monkeypatch.setattr(module, "_READ", 0)
    one = folder(tmp_path / "one", FILES)
    (one / "link").symlink_to("a.txt")
    seen = [contents.of_data(one)]
    # The same size and time of change, as `cp -p` leaves them.
    status = (one / "a.txt").stat()
    (one / "a.txt").write_text("2")
    os.utime(one / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    seen.append(contents.of_data(one))
    (one / "b/x").rename(one / "b/y")
    seen.append(contents.of_data(one))
    (one / "empty").mkdir()
    seen.append(contents.of_data(one))
    (one / "link").unlink()
    (one / "link").symlink_to("b/y")
    seen.append(contents.of_data(one))
    (one / "b/y").unlink()
    (one / "link").unlink()
    seen.append(contents.of_data(one))
    assert None not in seen
    assert len({*seen}) == len(seen)


def test_what_a_link_leads_to_counts(contents: Contents, tmp_path: Path):
    outside = folder(tmp_path / "outside", {"file": "1"})
    one = folder(tmp_path / "one", {})
    (one / "link").symlink_to(outside / "file")
    before = contents.of_data(one)
    (outside / "file").write_text("2")
    assert contents.of_data(one) != before
    (one / "folder").symlink_to(outside)
    assert contents.of_data(one) is None


def test_code_counts_without_its_times(contents: Contents, tmp_path: Path):
    def digest(code: Path) -> str:
        snapshot = take_snapshot(code)
        for each, part in snapshot.parts.items():
            with Blobs(tmp_path / "blobs").receive(each) as take:
                take(chunks.pack(part)[1].read())
        with Blobs(tmp_path / "blobs").receive(snapshot.digest) as take:
            take(snapshot.manifest)
        return snapshot.digest

    one = folder(tmp_path / "one", {f"{n}.py": str(n) for n in range(200)})
    first = digest(one)
    os.utime(one / "7.py", (1, 1))
    second = digest(one)
    assert first != second
    assert contents.of_code(first) == contents.of_code(second)
    (one / "7.py").write_text("8")
    assert contents.of_code(digest(one)) != contents.of_code(second)
    assert contents.of_code(None) == ""
