"""Snapshots: what is taken, what is left out, and that the same code has the same name."""

import os
import tarfile
from pathlib import Path

import pytest

from allranks import snapshot
from allranks.errors import NotFound, UsageError


def names(taken: snapshot.Snapshot) -> list[str]:
    with tarfile.open(fileobj=taken.file) as archive:
        return archive.getnames()


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_the_jobs_own_caches_and_environments_stay_out(tmp_path):
    put(
        tmp_path,
        "a.py",
        "outputs/x",
        "logs/y",
        "pkg/outputs/z",
        ".git/HEAD",
        "pkg/__pycache__/a.pyc",
    )
    put(tmp_path, "venv/pyvenv.cfg", "venv/lib/big")
    taken = snapshot.take(tmp_path)
    assert names(taken) == ["a.py", "pkg/outputs/z"]
    assert [note.split("(")[0] for note in taken.notes] == [
        "left out of the code: logs/ ",
        "left out of the code: outputs/ ",
        "left out of the code: venv/ ",
    ]


def test_gitignore_and_amlignore_which_wins(tmp_path):
    put(tmp_path, "a.py", "b.bin", "data/c", "keep/d.bin")
    (tmp_path / ".gitignore").write_text("*.bin\n!keep/d.bin\n")
    assert names(snapshot.take(tmp_path)) == [".gitignore", "a.py", "data/c", "keep/d.bin"]
    (tmp_path / ".amlignore").write_text("data/\n")
    found = names(snapshot.take(tmp_path))
    assert found == [".amlignore", ".gitignore", "a.py", "b.bin", "keep/d.bin"]


def test_the_same_code_has_the_same_name_wherever_it_lies(tmp_path):
    for folder in ("one", "two"):
        put(tmp_path / folder, "a.py", "sub/b.py")
        for path in (tmp_path / folder).rglob("*.py"):
            path.write_text("same")
            os.utime(path, (1_700_000_000, 1_700_000_000))
    one, two = snapshot.take(tmp_path / "one"), snapshot.take(tmp_path / "two")
    assert one.digest == two.digest
    (tmp_path / "two" / "a.py").chmod(0o755)
    assert snapshot.take(tmp_path / "two").digest != one.digest


def test_hostile_names_come_through(tmp_path):
    hostile = ["a\nb", "ü'\"", "$(touch x)", "-rf", b"\xff\xfe".decode(errors="surrogateescape")]
    for name in hostile:
        (tmp_path / name).write_text("x")
    assert sorted(names(snapshot.take(tmp_path))) == sorted(hostile)


def test_links_that_stay_inside_are_links_others_stay_out(tmp_path):
    put(tmp_path, "real/f")
    (tmp_path / "to-folder").symlink_to("real")
    (tmp_path / "outside").symlink_to("/etc/passwd")
    (tmp_path / "absolute").symlink_to(tmp_path / "real" / "f")
    os.mkfifo(tmp_path / "pipe")
    taken = snapshot.take(tmp_path)
    assert names(taken) == ["real/f", "to-folder"]
    assert len([note for note in taken.notes if "leads out" in note]) == 2


def test_a_link_that_leaves_and_comes_back_stays_out(tmp_path):
    put(tmp_path / "proj", "data.txt")
    (tmp_path / "proj" / "link").symlink_to("../proj/data.txt")
    assert names(snapshot.take(tmp_path / "proj")) == ["data.txt"]


def test_a_home_does_not_travel_and_a_file_named_logs_is_told(tmp_path):
    put(tmp_path, "a.py", ".allranks/token", ".allranks/server.lock", "logs")
    taken = snapshot.take(tmp_path)
    assert names(taken) == ["a.py"]
    assert len(taken.notes) == 2


def test_a_single_file(tmp_path):
    put(tmp_path, "train.py", "other.py")
    assert names(snapshot.take(tmp_path / "train.py")) == ["train.py"]


def test_what_is_large_is_said_with_its_largest_files(tmp_path):
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(snapshot.LARGE + 1)
    put(tmp_path, "a.py")
    taken = snapshot.take(tmp_path)
    assert "300 MB" in taken.notes[0]
    assert "huge.bin" in taken.notes[0]
    taken.file.close()


def test_nothing_there(tmp_path):
    with pytest.raises(NotFound, match="no such file"):
        snapshot.take(tmp_path / "nosuch")
    with pytest.raises(UsageError, match="root of the file system"):
        snapshot.take(Path("/"))
    assert snapshot.take(tmp_path).files == 0
