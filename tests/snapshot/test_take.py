"""Snapshots: what is taken, what is left out, and that the same code has the same name."""

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.errors import NotFound, UsageError
from allranks.snapshot import chunks, git
from allranks.snapshot import take as snapshot
from allranks.snapshot.files import File


def whole(taken: snapshot.Snapshot) -> tarfile.TarFile:
    """What a node gets: the chunks one after the other."""
    data = b""
    for digest in taken.parts:
        with taken.open(digest) as file:
            data += file.read()
    return tarfile.open(fileobj=io.BytesIO(data))


def names(taken: snapshot.Snapshot) -> list[str]:
    with whole(taken) as archive:
        found = archive.getnames()
    assert found == [*taken.files]
    return found


def old(root: Path) -> None:
    """Files that have not changed lately."""
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


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
    notes: list[str] = []
    assert names(snapshot.take_snapshot(tmp_path, notes.append)) == ["a.py", "pkg/outputs/z"]
    assert sorted(note.split("(")[0] for note in notes) == [
        "left out of the code: logs/ ",
        "left out of the code: outputs/ ",
        "left out of the code: venv/ ",
    ]


def test_the_same_code_has_the_same_name_wherever_it_lies(tmp_path):
    for folder in ("one", "two"):
        put(tmp_path / folder, "a.py", "sub/b.py")
        for path in (tmp_path / folder).rglob("*.py"):
            path.write_text("same")
            os.utime(path, (1_700_000_000, 1_700_000_000))
    one, two = snapshot.take_snapshot(tmp_path / "one"), snapshot.take_snapshot(tmp_path / "two")
    assert one.digest == two.digest
    (tmp_path / "two" / "a.py").chmod(0o755)
    assert snapshot.take_snapshot(tmp_path / "two").digest != one.digest


def test_hostile_names_come_through(tmp_path):
    hostile = ["a\nb", "ü'\"", "$(touch x)", "-rf", b"\xff\xfe".decode(errors="surrogateescape")]
    for name in hostile:
        (tmp_path / name).write_text("x")
    assert sorted(names(snapshot.take_snapshot(tmp_path))) == sorted(hostile)


def test_links_that_stay_inside_are_links_others_stay_out(tmp_path):
    put(tmp_path, "real/f")
    (tmp_path / "to-folder").symlink_to("real")
    (tmp_path / "outside").symlink_to("/etc/passwd")
    (tmp_path / "absolute").symlink_to(tmp_path / "real" / "f")
    os.mkfifo(tmp_path / "pipe")
    notes: list[str] = []
    assert names(snapshot.take_snapshot(tmp_path, notes.append)) == ["real/f", "to-folder"]
    assert notes[1].startswith("left out of the code: absolute, outside (links out of the folder;")


def test_a_link_that_leaves_and_comes_back_stays_out(tmp_path):
    put(tmp_path / "proj", "data.txt")
    (tmp_path / "proj" / "link").symlink_to("../proj/data.txt")
    assert names(snapshot.take_snapshot(tmp_path / "proj")) == ["data.txt"]


def test_a_home_does_not_travel_and_a_file_named_logs_is_told(tmp_path):
    put(tmp_path, "a.py", ".allranks/token", ".allranks/server.lock", "logs")
    notes: list[str] = []
    assert names(snapshot.take_snapshot(tmp_path, notes.append)) == ["a.py"]
    assert len(notes) == 2


def test_a_single_file(tmp_path):
    put(tmp_path, "train.py", "other.py")
    assert names(snapshot.take_snapshot(tmp_path / "train.py")) == ["train.py"]


@pytest.mark.medium
def test_what_is_large_is_said_with_its_largest_files(tmp_path):
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(snapshot.LARGE + 1)
    put(tmp_path, "a.py")
    notes: list[str] = []
    taken = snapshot.take_snapshot(tmp_path, notes.append)
    assert "300 MB" in notes[0]
    assert "huge.bin" in notes[0]
    assert len(taken.parts) == 2, "it does not travel again with every change beside it"


def test_nothing_there(tmp_path):
    with pytest.raises(NotFound, match="no such file or folder"):
        snapshot.take_snapshot(tmp_path / "nosuch")
    with pytest.raises(UsageError, match="root of the file system"):
        snapshot.take_snapshot(Path("/"))
    assert snapshot.take_snapshot(tmp_path).files == ()


@given(st.lists(st.tuples(st.text("ab/", min_size=1, max_size=9), st.integers(0, 6 << 20))))
def test_chunks_are_the_files_in_their_order_and_end_by_name(found: list[tuple[str, int]]):
    def file(name: str, size: int) -> File:
        return File(name, name, os.stat_result((0o644, 1, 1, 1, 0, 0, size, 0, 0, 0)))

    files = [file(*each) for each in sorted(dict(found).items())]
    parts = list(chunks.split(files))
    assert [each for part in parts for each in part] == files
    assert all(parts)


def test_a_change_makes_one_chunk_new(tmp_path):
    put(tmp_path, *(f"pkg{i // 40}/mod{i % 40}.py" for i in range(400)))
    before = snapshot.take_snapshot(tmp_path)
    assert 2 < len(before.parts) < 40
    put(tmp_path, "pkg5/new.py")
    (tmp_path / "pkg7/mod7.py").write_text("changed")
    after = snapshot.take_snapshot(tmp_path)
    assert 1 <= len(after.parts.keys() - before.parts.keys()) <= 4


def test_what_did_not_change_is_not_read(tmp_path, monkeypatch):
    code, memory = tmp_path / "code", tmp_path / "memory.json"
    put(code, *(f"mod{i}.py" for i in range(200)))
    old(code)
    read: list[int] = []
    packed = chunks.pack

    def counting(chunk: chunks.Chunk):
        read.append(len(chunk))
        return packed(chunk)

    monkeypatch.setattr(chunks, "pack", counting)
    # Its inode changed just now: what is that young is read again.
    monkeypatch.setattr(snapshot, "_RECENT_SECONDS", -1.0)
    first = snapshot.take_snapshot(code, cache_file=memory)
    assert sum(read) == 200
    read.clear()
    assert snapshot.take_snapshot(code, cache_file=memory).digest == first.digest
    assert read == []
    (code / "mod7.py").write_text("mod7.py.")
    os.utime(code / "mod7.py", (1_700_000_000, 1_700_000_000))
    assert snapshot.take_snapshot(code, cache_file=memory).digest != first.digest
    assert 0 < sum(read) < 200
    memory.write_text("{")
    assert snapshot.take_snapshot(code, cache_file=memory).digest != first.digest


def test_what_changed_lately_is_read_again(tmp_path):
    code, memory = tmp_path / "code", tmp_path / "memory.json"
    put(code, "a.py")
    snapshot.take_snapshot(code, cache_file=memory)
    assert not memory.exists(), "in the same tick of the clock it may change and look the same"


def test_code_that_changes_while_it_is_sent(tmp_path):
    put(tmp_path, "a.py")
    taken = snapshot.take_snapshot(tmp_path)
    (tmp_path / "a.py").write_text("other")
    with pytest.raises(UsageError, match="changed while it was being sent") as caught:
        taken.open(next(iter(taken.parts)))
    assert caught.value.where == "a.py"


def test_a_log_that_grows_is_sent_as_it_was(tmp_path):
    """`allranks run … > log.txt` in the folder of the code writes there while it sends it."""
    put(tmp_path, "a.py", "log.txt")
    taken = snapshot.take_snapshot(tmp_path)
    with (tmp_path / "log.txt").open("a") as log:
        log.write("more")
    with whole(taken) as archive:
        assert archive.extractfile("log.txt").read() == b"log.txt"


def test_a_file_that_changes_after_it_was_listed_is_read_whole(tmp_path, monkeypatch):
    put(tmp_path, "a.py")
    listed = snapshot.walk

    def and_then_edited(code: Path, notes: list[str], **options: bool):
        files = listed(code, notes, **options)
        (code / "a.py").write_text("edited, and longer")
        return files

    monkeypatch.setattr(snapshot, "walk", and_then_edited)
    with whole(snapshot.take_snapshot(tmp_path)) as archive:
        assert archive.extractfile("a.py").read() == b"edited, and longer"


def test_two_names_of_one_file_are_two_files(tmp_path):
    put(tmp_path, "a.py")
    os.link(tmp_path / "a.py", tmp_path / "b.py")
    with whole(snapshot.take_snapshot(tmp_path)) as archive:
        assert [archive.extractfile(each).read() for each in archive.getmembers()] == [b"a.py"] * 2


# ---------------------------------------------------------------- git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "re'po x"
    put(folder, "a.py", "sub/b.py")
    in_git(folder, "init", "-q", "-b", "main")
    in_git(folder, "add", ".")
    in_git(folder, "commit", "-q", "-m", "first")
    in_git(folder, "remote", "add", "origin", "https://me:hunter2@example.com/x.git")
    return folder


def in_git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_git_says_where_the_code_is_from(repository):
    told = git.GitQuery(repository / "sub").result()
    assert told.properties == {
        "azureml.git.repository_uri": "https://********@example.com/x.git",
        "azureml.git.branch": "main",
        "azureml.git.commit": in_git(repository, "rev-parse", "HEAD"),
        "azureml.git.dirty": "False",
    }
    assert told.diff == ""


def test_what_is_not_committed_is_told(repository):
    (repository / "a.py").write_text("new words")
    told = git.GitQuery(repository).result()
    assert told.properties["azureml.git.dirty"] == "True"
    assert "+new words" in told.diff
    assert git.GitQuery(repository / "sub").result().diff == "", "it is not of the code"
    in_git(repository, "checkout", "-q", ".")
    put(repository, "untracked.py")
    assert git.GitQuery(repository).result().properties["azureml.git.dirty"] == "True"


def test_secrets_of_files_are_told_and_are_not_in_the_diff(repository):
    for name in (".env", "sub/.ENV.prod", "deep/er/server.key", ".aws/config", "a.py"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("before\n")
    in_git(repository, "add", "-f", ".")
    in_git(repository, "commit", "-qm", "secrets")
    for path in repository.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            path.write_text(f"secret of {path.name}\n")
    diff = git.GitQuery(repository).result().diff
    assert "+secret of a.py" in diff
    assert diff.count("+secret of") == len([*repository.rglob("*.py")]), diff
    notes: list[str] = []
    snapshot.take_snapshot(repository, notes.append)
    assert [note for note in notes if "and 3 more, named as secrets are" in note]


def test_what_is_no_repository_has_nothing_to_tell(tmp_path):
    assert git.GitQuery(tmp_path).result() == git.GitState()
    (tmp_path / ".git").write_text("nonsense")
    assert git.GitQuery(tmp_path).result() == git.GitState()
    in_git(tmp_path.parent, "init", "-q", str(tmp_path / "empty"))
    assert git.GitQuery(tmp_path / "empty").result() == git.GitState()


def test_a_long_diff_is_cut(repository, monkeypatch):
    monkeypatch.setattr(git, "_MAX_DIFF", 100)
    (repository / "a.py").write_text("x\n" * 1000)
    told = git.GitQuery(repository).result()
    assert "bytes more" in told.diff
    assert len(told.diff) < 200


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("git+https://github.com/a/b.git@main#src", ("https://github.com/a/b.git", "main", "src")),
        ("https://github.com/a/b", ("https://github.com/a/b", None, None)),
        ("https://u:p@h/x/y.git@v1#subdirectory=a/b", ("https://u:p@h/x/y.git", "v1", "a/b")),
        ("git@github.com:a/b.git@dev#x", ("git@github.com:a/b.git", "dev", "x")),
        ("git+ssh://git@h:22/a.git@feature/x", ("ssh://git@h:22/a.git", "feature/x", None)),
        ("git+file:///tmp/re po", ("file:///tmp/re po", None, None)),
    ],
)
def test_addresses_of_repositories(address: str, found: tuple[str | None, ...]):
    assert git.is_address(address)
    matched = re.fullmatch(git._ADDRESS, address)
    assert matched is not None
    url = matched["any"] or matched["plain"] or matched["short"]
    assert (url, matched["ref"], matched["folder"]) == found


@pytest.mark.parametrize(
    "path", ["src", "./a@b", "/a/b", "s3://a/b", "azureml:a:1", "a@b", "file:x"]
)
def test_paths_are_no_addresses(path: str):
    assert not git.is_address(path)


def test_a_commit_is_fetched_once_and_is_what_it_was(repository, tmp_path):
    in_git(repository, "tag", "v1")
    first = in_git(repository, "rev-parse", "HEAD")
    put(repository, "later.py")
    in_git(repository, "add", ".")
    in_git(repository, "commit", "-q", "-m", "second")
    address = f"git+file://{repository}"
    at_tag = git.checkout(f"{address}@v1#sub", tmp_path / "kept")
    assert at_tag.folder.name == "sub"
    assert at_tag.git.properties["azureml.git.commit"] == first
    assert at_tag.git.properties["azureml.git.branch"] == "v1"
    newest = git.checkout(address, tmp_path / "kept")
    assert sorted(each.name for each in newest.folder.iterdir()) == ["a.py", "later.py", "sub"]
    assert git.checkout(address, tmp_path / "kept").folder == newest.folder
    assert [*(tmp_path / "kept").glob("*/tmp*")] == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("@nope", "remote ref nope"),
        ("@v1#nope", "'nope' not found in"),
        ("#../../..", "'../../..' not found in"),
    ],
)
def test_what_is_not_in_a_repository(repository, tmp_path, after, said):
    in_git(repository, "tag", "v1")
    with pytest.raises((NotFound, UsageError), match=said) as caught:
        git.checkout(f"git+file://{repository}{after}", tmp_path / "kept")
    assert caught.value.hint
