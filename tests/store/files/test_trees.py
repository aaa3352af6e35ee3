"""Folders of files, named by what is in them."""

import json
import os
import shutil
import stat

import pytest

from allranks.errors import MissingData, NotFound, UsageError
from allranks.store.files.trees import TEMPORARY_PREFIX, Trees, leads_to, matches, model_files


@pytest.fixture
def trees(tmp_path):
    return Trees(tmp_path / "models")


@pytest.fixture
def source(tmp_path):
    """A model of a hostile name."""
    folder = tmp_path / "a\nb 'x"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph" * 1000)
    (folder / "variables" / os.fsdecode(b"\xff.data")).write_bytes(b"")
    return folder


def kept(trees, sources) -> str:
    with trees.copy(sources) as copy:
        trees.keep(copy)
    return copy.digest


def open_up(folder):
    """Let a job that is not root write to a folder of a tree."""
    for path in (folder, *folder.rglob("*/")):
        path.chmod(0o755)


def left(trees):
    return sorted(each.name for each in trees.files("").parent.iterdir())


def test_what_is_kept_is_whole_read_only_and_its_own(trees, source):
    digest = kept(trees, model_files(source, source))
    entries = trees.manifest(digest)
    assert [each.path for each in entries] == ["saved_model.pb", "variables/\udcff.data"]
    assert [each.size for each in entries] == [5000, 0]
    files = trees.files(digest)
    assert all(matches(files / each.path, each) for each in entries)
    assert trees.path(digest) == files
    mode = (files / "saved_model.pb").stat().st_mode
    assert stat.S_IMODE(mode) == 0o444
    (source / "saved_model.pb").write_bytes(b"other")
    assert (files / "saved_model.pb").read_bytes() == b"graph" * 1000
    assert left(trees) == [digest]


def test_folders_are_as_old_as_the_newest_file_in_them(trees, source):
    for time, path in enumerate(sorted(path for path in source.rglob("*") if path.is_file())):
        os.utime(path, ns=(time + 7, time + 7))
    files = trees.files(kept(trees, model_files(source, source)))
    assert (files / "variables").stat().st_mtime_ns == 8


def test_one_file_is_that_file(trees, source):
    digest = kept(trees, model_files(source / "saved_model.pb", source))
    assert trees.path(digest) == trees.files(digest) / "saved_model.pb"


def test_the_same_is_kept_once_and_mended(trees, source):
    sources = model_files(source, source)
    digest = kept(trees, sources)
    path = trees.files(digest) / "saved_model.pb"
    path.chmod(0o644)
    path.write_bytes(b"grapf" * 1000)
    open_up(path.parent)
    shutil.rmtree(path.with_name("variables"))
    manifest = path.parents[1] / "manifest.json"
    manifest.write_text(manifest.read_text().replace("5000", "5001"))
    with pytest.raises(NotFound, match="is damaged"):
        trees.manifest(digest)
    with trees.copy(sources) as copy:
        assert copy.digest == digest
        trees.repair(copy)
        trees.keep(copy)
    assert all(matches(path.parent / each.path, each) for each in trees.manifest(digest))
    assert left(trees) == [digest]


def test_a_tree_that_is_taken_away_while_it_is_mended_comes_back_whole(
    trees, source, tmp_path, monkeypatch
):
    sources = model_files(source, source)
    digest = kept(trees, sources)

    def gone_meanwhile(path, entry):
        found = matches(path, entry)
        if (tmp_path / "models" / digest).exists():
            (tmp_path / "models" / digest).rename(tmp_path / "going")
        return found

    monkeypatch.setattr("allranks.store.files.trees.matches", gone_meanwhile)
    with trees.copy(sources) as copy:
        trees.repair(copy)
        trees.keep(copy)
    files = trees.files(digest)
    assert all(matches(files / each.path, each) for each in trees.manifest(digest))
    stored = ["files", "manifest.json", "times.json"]
    assert sorted(each.name for each in files.parent.iterdir()) == stored


def test_what_is_not_kept_leaves_nothing(trees, source):
    with trees.copy(model_files(source, source)) as copy:
        assert copy.folder.name.startswith(TEMPORARY_PREFIX)
    assert left(trees) == []
    with pytest.raises(NotFound, match="is missing"):
        trees.manifest(copy.digest)


def test_a_file_without_data_is_not_copied_for_hours(trees, source):
    with (source / "m.bin").open("wb") as file:
        file.truncate(1 << 42)
    with (
        pytest.raises(UsageError, match=r"'m\.bin' is mostly a hole"),
        trees.copy({"m.bin": source / "m.bin"}),
    ):
        pass


def test_the_digest_is_of_names_and_contents_alone(trees, source, tmp_path):
    digest = kept(trees, model_files(source, source))
    os.utime(source / "saved_model.pb", (1, 1))
    assert kept(trees, model_files(source, source)) == digest
    (source / "saved_model.pb").rename(source / "other.pb")
    assert kept(trees, model_files(source, source)) != digest
    manifest = json.loads((tmp_path / "models" / digest / "manifest.json").read_bytes())
    assert manifest[0].keys() == {"path", "size", "sha256"}


def test_onnx_takes_what_lies_beside_it(source):
    for name in ("m.onnx", "m.onnx.data", "n.onnx.data"):
        (source / name).write_bytes(b"x")
    assert model_files(source / "m.onnx", source).keys() == {"m.onnx", "m.onnx.data"}


def test_links_that_stay_inside_are_kept_and_others_are_files(trees, source, tmp_path):
    (source / "best.pb").symlink_to("saved_model.pb")
    (source / "latest").symlink_to(source / "variables")
    (source / "last").symlink_to(os.fsdecode(b"latest/\xff.data"))
    (tmp_path / "beside").write_text("weights")
    (source / "out").symlink_to("../beside")
    files = model_files(source, tmp_path)
    assert (files["best.pb"], files["latest"]) == ("saved_model.pb", "variables")
    assert files["out"] == tmp_path / "beside"
    assert [*model_files(source / "best.pb", source).values()] == [source / "saved_model.pb"]
    tree, before = kept(trees, files), model_files(source / "variables", source)
    assert os.readlink(trees.files(tree) / "latest") == "variables"
    assert not (trees.files(tree) / "out").is_symlink()
    entries = {entry.path: entry for entry in trees.manifest(tree)}
    assert leads_to("best.pb", entries) == "saved_model.pb"
    assert leads_to("last", entries) == os.fsdecode(b"variables/\xff.data")
    assert leads_to("latest", entries) == ""
    # It is repaired, and a tree of files alone is named as 0.1.0 names it.
    open_up(trees.files(tree))
    (trees.files(tree) / "latest").unlink()
    with trees.copy(files) as copy:
        trees.repair(copy)
    assert os.readlink(trees.files(tree) / "latest") == "variables"
    manifest = (trees.folder / kept(trees, before) / "manifest.json").read_text()
    assert all(entry.keys() == {"path", "size", "sha256"} for entry in json.loads(manifest))


@pytest.mark.parametrize("text", ["../x", "/etc/passwd", "a/../../x", "..", ""])
def test_a_link_that_somebody_sends_is_checked_as_it_is_written(trees, text):
    with pytest.raises(UsageError, match="leads outside"), trees.copy({"link": text}):
        pass


def test_a_name_that_cannot_be_sent_is_told_so_that_it_can(source):
    (source / os.fsdecode(b"\xff")).symlink_to("nowhere")
    with pytest.raises(UsageError) as caught:
        model_files(source, source)
    json.dumps(caught.value.body(), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path, source: path.symlink_to("/etc/hosts"), "a link that leads outside"),
        (lambda path, source: path.symlink_to("nowhere"), "is not a link to a file"),
        (lambda path, source: path.symlink_to(source.parent), "is not a link to a file"),
        (lambda path, source: os.mkfifo(path), "is not a regular file"),
    ],
)
def test_what_is_no_plain_file_is_refused_by_name(source, make, said):
    make(source / "odd", source)
    with pytest.raises(UsageError, match=f"'odd' is {said.removeprefix('is ')}") as caught:
        model_files(source, source)
    assert caught.value.hint


@pytest.mark.parametrize("swapped", ["variables", "saved_model.pb"])
def test_a_link_that_comes_before_a_file_is_copied(source, swapped, tmp_path):
    files = model_files(source, source)
    (source / swapped).rename(tmp_path / "away")
    (source / swapped).symlink_to(tmp_path / "away")
    with pytest.raises(OSError), Trees(tmp_path / "trees").copy(files):
        pass


def test_folders_that_lead_elsewhere_or_hold_nothing_are_refused(source, tmp_path):
    (source / "up").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="'up' is a link that leads outside"):
        model_files(source / "up", source)
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(UsageError, match="without files"):
        model_files(tmp_path / "empty", tmp_path)


@pytest.mark.parametrize("change", ["content", "new", "gone", "link", "kind", "folder"])
def test_a_tree_that_a_job_has_changed_is_noticed_and_repaired(trees, source, change):
    sources = model_files(source, source)
    digest = kept(trees, sources)
    trees.require_unchanged(digest)
    files = trees.files(digest)
    file, folder = files / "saved_model.pb", files / "variables"
    for each in (files, folder):
        assert each.stat().st_mode & 0o222 == 0
        each.chmod(0o755)
    if change == "content":
        file.chmod(0o644)
        file.write_bytes(b"grapH" * 1000)
    elif change == "new":
        (folder / "more").mkdir()
    elif change == "gone":
        file.unlink()
    elif change == "link":
        file.unlink()
        file.symlink_to(source / "saved_model.pb")
    elif change == "kind":
        file.unlink()
        file.mkdir()
    else:
        shutil.move(folder, source.parent / "elsewhere")
        folder.symlink_to(source.parent / "elsewhere")
    with pytest.raises(MissingData, match=r"changed after it was registered: '.*', on \d.* UTC"):
        trees.require_unchanged(digest)
    with trees.copy(sources) as copy:
        trees.repair(copy)
    trees.require_unchanged(digest)
    assert not folder.is_symlink()
    assert files.stat().st_mode & 0o222 == 0


def test_times_are_no_change_and_those_of_old_trees_are_noted(trees, source):
    digest = kept(trees, model_files(source, source))
    times = trees.files(digest).parent / "times.json"
    times.unlink()
    os.utime(trees.files(digest) / "saved_model.pb", ns=(1, 1))
    trees.require_unchanged(digest)
    assert json.loads(times.read_text())["saved_model.pb"] == 1


def test_pythons_caches_are_no_change(trees, source):
    digest = kept(trees, model_files(source, source))
    open_up(trees.files(digest))
    (trees.files(digest) / "__pycache__").mkdir()
    (trees.files(digest) / "__pycache__" / "code.cpython-312.pyc").touch()
    trees.require_unchanged(digest)
