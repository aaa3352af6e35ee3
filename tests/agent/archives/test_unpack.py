"""Unpacking with worker processes: names, limits, full disks, killed processes."""

import os
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from allranks.agent.archives import size_limit
from allranks.agent.archives.unpack import is_archive, stem, unpack
from allranks.errors import AllranksError, NotFound, Unsupported
from tests.archives import NAMES, TARS, UNLIMITED, entry, extract, extract_all, hard, link, tar
from tests.support import children, until


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("a.tar", "a"),
        ("a.b.TAR.GZ", "a.b"),
        ("a.tgz", "a"),
        ("a.tar.bz2", "a"),
        ("a.tbz2", "a"),
        ("a.tar.xz", "a"),
        ("a.txz", "a"),
        ("a.tar.zst", "a"),
        ("a.tzst", "a"),
        ("a.zip", "a"),
        ("-.tar", "-"),
    ],
)
def test_archive_suffixes(name, rest):
    assert is_archive(name)
    assert stem(name) == rest


@pytest.mark.parametrize(
    "name", ["a", "a.gz", "tar", ".tar", "..zip", "...tgz", "a.rar", "a.tar.x"]
)
def test_other_suffixes(name):
    assert not is_archive(name)
    assert stem(name) == name


@pytest.mark.parametrize("kind", TARS)
def test_tar_round_trip(tmp_path, kind):
    shell = entry("bin/run.sh", mode=0o6755)
    made = tar(tmp_path / f"-b irds.{kind}", *NAMES, shell, link("link", "bin/run.sh"),
               link("bin/up", "../bin"), hard("hard", "-rf"), mode=TARS[kind])  # fmt: skip
    goal = tmp_path / "go al" / "$x\n"
    calls = extract_all((made, goal))
    for name in NAMES:
        assert Path(os.path.normpath(goal / name)).read_bytes() == b"x"
    assert os.readlink(goal / "link") == "bin/run.sh"
    assert (goal / "bin/up/run.sh").stat().st_mtime == 1_600_000_000
    assert (goal / "hard").stat().st_ino == (goal / "-rf").stat().st_ino
    assert calls[-1] == (1, len(NAMES) + 1)


def test_zip_round_trip(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name in NAMES[:-2]:
            file.writestr(name, name * 1000)
        file.writestr("empty/", "")
        linked = zipfile.ZipInfo("a link")
        linked.create_system, linked.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        file.writestr(linked, "-rf")
        script = zipfile.ZipInfo("run.sh")
        script.create_system, script.external_attr = 3, (stat.S_IFREG | 0o4755) << 16
        file.writestr(script, "")
    extract_all((tmp_path / "b.zip", tmp_path / "b"))
    for name in NAMES[:-2]:
        assert (tmp_path / "b" / name).read_text() == name * 1000
    assert (tmp_path / "b" / "empty").is_dir()
    assert os.readlink(tmp_path / "b" / "a link") == "-rf"
    assert stat.S_IMODE((tmp_path / "b" / "run.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["b.tar.zst", "b.tzst"])
def test_zstd(tmp_path, monkeypatch, name):
    plain = tar(tmp_path / "b.tar", *NAMES)
    made = tmp_path / name
    monkeypatch.setenv("PATH", str(tmp_path))
    made.touch()
    with pytest.raises(AllranksError, match="needs the program zstd") as caught:
        extract_all((made, tmp_path / "goal"))
    assert "install zstd" in (caught.value.hint or "")
    assert not (tmp_path / "goal").exists()
    monkeypatch.undo()
    try:
        subprocess.run(["zstd", "-qf", plain, "-o", made], check=True)
    except FileNotFoundError:
        pytest.skip("zstd is not installed")
    extract_all((made, tmp_path / "goal"))
    assert (tmp_path / "goal/-rf").read_bytes() == b"x"
    cut = made.read_bytes()
    for size in (len(cut) // 2, len(cut) - 2):
        made.write_bytes(cut[:size])
        with pytest.raises(AllranksError, match=r"b\.t.* cannot be unpacked"):
            extract(made, tmp_path / f"cut{size}")


def test_a_refusal_in_a_worker_is_raised(tmp_path):
    made = [(tar(tmp_path / f"{i}.tar", "x"), tmp_path / f"{i}") for i in range(5)]
    made.append((tar(tmp_path / "birds.tar", "../../etc/x"), tmp_path / "birds"))
    with pytest.raises(AllranksError) as caught:
        extract_all(*made)
    assert caught.value.message == "'../../etc/x' in birds.tar would be written outside its folder"
    assert caught.value.where == str(tmp_path / "birds.tar")
    assert children("allranks.agent.archives.unpack_process") == []


@pytest.mark.parametrize("name", ["b.rar", "b.7z", "b.gz", "b"])
def test_unsupported_archives(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(Unsupported, match="is not a supported archive"):
        extract_all((tmp_path / name, tmp_path / "goal"))


def test_missing_archives(tmp_path):
    with pytest.raises(NotFound, match=r"cannot find the archive b\.tar: No such file"):
        extract_all((tmp_path / "b.tar", tmp_path / "goal"))
    os.mkfifo(tmp_path / "b.tar")
    with pytest.raises(Unsupported):
        extract_all((tmp_path / "b.tar", tmp_path / "goal"))
    assert extract_all() == []


def test_a_password_protected_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("x", "x")
    raw = bytearray((tmp_path / "b.zip").read_bytes())
    raw[raw.index(b"PK\3\4") + 6] |= 1
    raw[raw.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(raw)
    with pytest.raises(AllranksError, match="protected by a password"):
        extract_all((tmp_path / "b.zip", tmp_path / "goal"))
    assert not (tmp_path / "goal").exists()


@pytest.mark.medium
def test_the_limit_on_unpacked_bytes(tmp_path):
    made = tar(tmp_path / "b.tar.gz", "zeros", mode="w:gz", data=bytes(30 << 20))
    assert made.stat().st_size < 100_000
    with pytest.raises(AllranksError, match=r"limit of 10\.0 MB; stopped in b\.tar\.gz"):
        extract_all((made, tmp_path / "goal"), limit=10_000_000)
    assert sum(each.stat().st_size for each in (tmp_path / "goal").iterdir()) == 0
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(30 << 20))
    with pytest.raises(AllranksError, match=r"takes 31\.5 MB; the limit is 10\.0 MB"):
        extract_all((tmp_path / "b.zip", tmp_path / "none"), limit=10_000_000)
    plain = tar(tmp_path / "b.tar", "x", data=bytes(30 << 20))
    with pytest.raises(AllranksError, match=r"takes 31\.5 MB; the limit is 10\.0 MB"):
        extract_all((plain, tmp_path / "none"), limit=10_000_000)
    assert not (tmp_path / "none").exists()
    extract_all((plain, tmp_path / "fits"), limit=(30 << 20) + 512)


def test_archives_share_the_limit(tmp_path):
    made = [
        (tar(tmp_path / f"{i}.tar.gz", "x", mode="w:gz", data=bytes(3 << 20)), tmp_path / f"{i}")
        for i in range(4)
    ]
    with pytest.raises(AllranksError, match=r"limit of 10\.0 MB"):
        extract_all(*made, limit=10_000_000)
    extract_all(*made, limit=13_000_000)


def test_empty_files_count_towards_the_limit(tmp_path):
    made = tar(tmp_path / "b.tar.gz", *(str(i) for i in range(500)), mode="w:gz", data=b"")
    with pytest.raises(AllranksError, match=r"limit of 100\.0 kB"):
        extract(made, tmp_path / "goal", limit=100_000)


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "small disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="a full disk is a small tmpfs, which root can mount")
@pytest.mark.medium
def test_a_full_disk(tmp_path, small, monkeypatch):
    sentence = "not enough disk space to unpack"
    plain = tar(tmp_path / "b.tar", "one", "two", data=os.urandom(3 << 20))
    with pytest.raises(AllranksError, match=sentence) as caught:
        extract_all((plain, small / "none"))
    assert caught.value.where == str(small / "none")
    assert not (small / "none").exists()
    packed = tar(tmp_path / "b.tgz", "one", "two", data=os.urandom(3 << 20), mode="w:gz")
    with pytest.raises(AllranksError, match=sentence):
        extract_all((packed, small / "goal"))
    many = tar(tmp_path / "c.tgz", *map(str, range(2000)), data=b"y" * 2000, mode="w:gz")
    (small / "goal/one").unlink()
    with pytest.raises(AllranksError, match=sentence):
        extract_all((many, small / "many"))
    disk = os.statvfs(small)
    assert disk.f_bavail * disk.f_frsize >= 32768, "a reserve stays free"
    # Without our check, the system call fails.
    monkeypatch.setattr(size_limit, "free_bytes", lambda folder: UNLIMITED)
    with pytest.raises(AllranksError, match=sentence) as caught:
        extract(packed, small / "real")
    assert caught.value.where == str(small / "real")


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AllranksError, match="cannot be unpacked: Not a directory"):
        extract_all((tar(tmp_path / "b.tar", "x"), tmp_path / "file" / "goal"))


@pytest.mark.medium
def test_a_killed_worker_ends_all(tmp_path):
    made = [
        (tar(tmp_path / f"{i}.tar.gz", "x", mode="w:gz", data=bytes(30 << 20)), tmp_path / f"{i}")
        for i in range(3)
    ]
    killed: list[psutil.Process] = []

    def kill(done: int, written: int) -> None:
        if not killed:
            killed.append(children("allranks.agent.archives.unpack_process")[0])
            killed[0].kill()

    with pytest.raises(AllranksError, match="was killed by SIGKILL") as caught:
        unpack(made, UNLIMITED, kill, 2)
    assert "dmesg" in (caught.value.hint or "")
    assert children("allranks.agent.archives.unpack_process") == []

    def stop(done: int, written: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(made, UNLIMITED, stop, 2)
    assert children("allranks.agent.archives.unpack_process") == []


DIES = """
import os, signal, sys
from pathlib import Path
from allranks.agent.archives.unpack import unpack
def die(done, written):
    os.kill(os.getpid(), signal.SIGKILL)
folder = Path(sys.argv[1])
unpack([(folder / "b.tgz", folder / str(i)) for i in range(4)], 1 << 40, die, 2)
"""


def test_workers_die_with_their_parent(tmp_path):
    tar(tmp_path / "b.tgz", "x", mode="w:gz", data=bytes(60 << 20))
    parent = subprocess.Popen([sys.executable, "-c", DIES, tmp_path])
    assert parent.wait() == -signal.SIGKILL

    def workers() -> list[psutil.Process]:
        mark = ["allranks.agent.archives.unpack_process", str(parent.pid)]
        return [
            p for p in psutil.process_iter(["cmdline"]) if mark == (p.info["cmdline"] or [])[5:7]
        ]

    until(lambda: not workers())


def test_many_shards(tmp_path):
    data = os.urandom(20_000)
    made = [
        (
            tar(tmp_path / f"{i:03}.tar", *(f"{i:03}/{j}" for j in range(5)), data=data),
            tmp_path / "all",
        )
        for i in range(100)
    ]
    calls = extract_all(*made)
    assert calls[-1] == (100, 500 * len(data))
    found = [path for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert len(found) == 500
    assert all(path.read_bytes() == data for path in found)
