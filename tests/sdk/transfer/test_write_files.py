"""Where fetched files land: inside their folder, whole, and never through what lies there."""

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from allranks.api.routes import Route
from allranks.errors import NotFound, ServerError
from allranks.sdk.transfer.download import download
from allranks.sdk.transfer.write_files import beside, checked, destination, is_there, place_link

NEVER = threading.Event()
TIME = 1_700_000_000_123_456_789


def land(folder: Path, goal: str, data: bytes = b"new") -> None:
    with destination(folder, goal, beside(goal, ()), NEVER) as file:
        file.cut()
        file.write(data)
        file.finish(TIME)


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/x", "a//x", "a/./x", "..", "", "a/", "a\0b"]
)
def test_a_name_that_leads_elsewhere_is_refused(path):
    with pytest.raises(ServerError, match="outside of the folder"):
        checked(path)


@pytest.mark.parametrize(
    "path",
    ["...", "a/..x", " ", "a b/\n", "\udcff/\udcfe", "~/x", "$(x)", "-rf", "a\\..\\b", "é" * 99],
)
def test_a_name_that_only_looks_odd_is_a_name(tmp_path, path):
    land(tmp_path, checked(path))
    (found,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert str(found.relative_to(tmp_path)) == path
    assert (found.read_bytes(), found.stat().st_mtime_ns) == (b"new", TIME)
    assert is_there(tmp_path, path, 3, TIME)
    assert not is_there(tmp_path, path, 4, TIME)
    assert not is_there(tmp_path, path, 3, TIME - 5000)


def test_the_part_has_a_name_that_no_other_file_has(tmp_path):
    assert beside("a/x", {"a/x", "x.part"}) == "x.part"
    assert beside("a/x", {"a/x", "a/x.part", "a/x.part.part"}) == "x.part.part.part"
    longest = "ü" * 127
    land(tmp_path, longest)
    assert [p.name for p in tmp_path.iterdir()] == [longest]
    short = beside(longest, ())
    assert beside(longest, {short}) != short


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("old")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("x", "x.part"):
        (folder / name).symlink_to(victim)
    assert not is_there(folder, "x", 3, victim.stat().st_mtime_ns)
    land(folder, "x")
    assert victim.read_text() == "old"
    assert (folder / "x").read_bytes() == b"new"
    assert not (folder / "x").is_symlink()
    assert [p.name for p in folder.iterdir()] == ["x"]


def test_a_part_that_is_another_files_second_name_is_left_alone(tmp_path):
    (tmp_path / "victim").write_text("old")
    os.link(tmp_path / "victim", tmp_path / "x.part")
    os.mkfifo(tmp_path / "y.part")
    land(tmp_path, "x")
    land(tmp_path, "y")
    assert (tmp_path / "victim").read_text() == "old"
    assert (tmp_path / "y").read_bytes() == b"new"


def test_a_linked_folder_in_the_way_is_refused(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "artifacts").symlink_to(elsewhere)
    with pytest.raises(ServerError, match="artifacts is a symbolic link") as caught:
        land(folder, "artifacts/outputs/x")
    assert "remove it" in str(caught.value.hint)
    assert list(elsewhere.iterdir()) == []
    # The folder that was named may itself be one: that is the user's word, not the server's.
    (tmp_path / "named").symlink_to(elsewhere)
    land(tmp_path / "named", "x")
    assert (elsewhere / "x").exists()


def test_folders_and_files_in_the_way(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(ServerError, match="a folder of that name exists") as caught:
        land(tmp_path, "x")
    assert caught.value.where == str(tmp_path / "x")
    assert "move it away" in str(caught.value.hint)
    (tmp_path / "y").write_text("")
    with pytest.raises(ServerError, match="not a directory") as caught:
        land(tmp_path, "y/z")
    assert "not a folder" in str(caught.value.hint)
    with pytest.raises(ServerError, match="cannot write here"):
        land(tmp_path / "y", "z")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x", "y"]


@pytest.mark.skipif(os.getuid() != 0, reason="a full disk is a small tmpfs, which root can mount")
def test_a_full_disk_is_told_and_what_came_is_kept(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        with pytest.raises(ServerError, match="no space left") as caught:
            land(tmp_path, "big", b"x" * (4 << 20))
        assert caught.value.where == str(tmp_path / "big")
        assert "free space on that disk and run the same command again" in str(caught.value.hint)
        assert 0 < (tmp_path / "big.part").stat().st_size <= 1 << 20
        assert not (tmp_path / "big").exists()
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_of_two_who_fetch_the_same_the_second_waits(tmp_path):
    seen, waiting = [], threading.Event()

    def second() -> None:
        waiting.set()
        with destination(tmp_path, "x", "x.part", NEVER) as file:
            seen.append((is_there(tmp_path, "x", 3, TIME), file.size))

    thread = threading.Thread(target=second)
    with destination(tmp_path, "x", "x.part", NEVER) as file:
        thread.start()
        waiting.wait()
        file.write(b"new")
        assert seen == []
        file.finish(TIME)
    thread.join()
    assert seen == [(True, 0)]
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


class Told:
    """A server that tells of a job what it likes."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def ask(self, route: Route[Any], *names: str, **query: object) -> object:
        path = route.url(*names, **query)
        if path.endswith(("/links", "=true")):
            return []
        if not path.endswith("/files"):
            job = {"type": "command", "attempts": 1, "ended_at": None, "outputs": {"o": "/x"}}
            return {**job, "spec": {"outputs": {"o": None}}}
        return [{"path": each, "size": 3, "mtime_ns": TIME} for each in self.paths]

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("artifacts/../../x", {}),
        ("attempts/1/../../../x", {}),
        ("attempts/1//etc/x", {}),
        ("/etc/x", {"everything": True}),
        ("named-outputs/o/../../../x", {"output": "o"}),
    ],
)
def test_a_server_that_names_files_elsewhere_gets_nothing_written(tmp_path, path, words):
    folder = tmp_path / "folder"
    server = Told(["artifacts/outputs/fine", path])
    with pytest.raises(ServerError, match="outside of the folder"):
        download(lambda: server, "j", folder, **words)  # type: ignore[arg-type,return-value]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["../o", "o/", "o/x", "", "a/b", "/"])
def test_an_output_that_the_job_has_not_got(tmp_path, output):
    server = Told(["named-outputs/o/x"])
    with pytest.raises(NotFound, match="has no output"):
        download(lambda: server, "j", tmp_path, output=output)  # type: ignore[arg-type,return-value]


def test_links_stay_inside_and_take_the_place_of_links_alone(tmp_path: Path) -> None:
    assert place_link(tmp_path, "d/sub/link", "../a")
    assert place_link(tmp_path, "d/sub/link", "../b")
    assert os.readlink(tmp_path / "d/sub/link") == "../b"
    for target in ("/etc", "../../x", "x/../../../x", ""):
        assert not place_link(tmp_path, "d/sub/out", target)
    (tmp_path / "d/file").write_text("mine")
    assert not place_link(tmp_path, "d/file", "sub")
    (tmp_path / "d/away").symlink_to("/tmp")
    assert not place_link(tmp_path, "d/away/link", "x")
    assert (tmp_path / "d/file").read_text() == "mine"
    assert sorted(os.listdir(tmp_path / "d")) == ["away", "file", "sub"]
