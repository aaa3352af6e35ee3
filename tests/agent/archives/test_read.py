"""Reading archives: formats, damaged files, odd zips."""

import contextlib
import gzip
import os
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.errors import AllranksError
from tests.archives import TARS, entry, extract, extract_all, link, tar


def test_utf8_names_in_a_zip_of_macos(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("xxxx", "")
    raw = (tmp_path / "b.zip").read_bytes().replace(b"xxxx", "üé".encode())
    (tmp_path / "b.zip").write_bytes(raw)
    extract(tmp_path / "b.zip", tmp_path / "b")
    assert os.listdir(tmp_path / "b") == ["üé"]


def test_format_is_taken_from_content_before_the_name(tmp_path):
    tar(tmp_path / "a.tar.xz", "x", mode="w:gz")
    tar(tmp_path / "b.zip", "x")
    tar(tmp_path / "c.tgz", "BZh91AY&SY")
    for number, each in enumerate(("a.tar.xz", "b.zip", "c.tgz")):
        extract(tmp_path / each, tmp_path / str(number))
        assert len(os.listdir(tmp_path / str(number))) == 1


def test_sparse_files(tmp_path):
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 50 << 20)
    with (tmp_path / "file").open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"y" * 5000)
    for form in ("gnu", "pax"):
        words = ["tar", f"--format={form}", "-cSf", "b.tar", "file"]
        subprocess.run(words, cwd=tmp_path, check=True)
        extract(tmp_path / "b.tar", tmp_path / form)
        path = tmp_path / form / "file"
        assert path.read_bytes() == (tmp_path / "file").read_bytes()
        assert path.stat().st_blocks * 512 < 1 << 20
        with pytest.raises(AllranksError, match=r"limit (is|of) 10\.0 MB"):
            extract_all((tmp_path / "b.tar", tmp_path / f"{form}-2"), limit=10_000_000)


def test_unsupported_compression_method(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("x", "x")
    raw = bytearray((tmp_path / "b.zip").read_bytes())
    raw[raw.index(b"PK\3\4") + 8] = raw[raw.index(b"PK\1\2") + 10] = 9
    (tmp_path / "b.zip").write_bytes(raw)
    with pytest.raises(AllranksError, match="uses a compression method"):
        extract(tmp_path / "b.zip", tmp_path / "goal")


Damage = Callable[[bytearray], object]
DAMAGES: dict[str, Damage] = {
    "empty": lambda raw: raw.clear(),
    "in the first header": lambda raw: raw.__delitem__(slice(100, None)),
    "in the middle": lambda raw: raw.__delitem__(slice(len(raw) // 2, None)),
    "near the end": lambda raw: raw.__delitem__(slice(len(raw) - len(raw) // 8, None)),
    "another byte": lambda raw: raw.__setitem__(len(raw) // 2, raw[len(raw) // 2] ^ 255),
    "zeros": lambda raw: raw.__setitem__(slice(0, 600), bytes(600)),
    "text": lambda raw: raw.__setitem__(slice(0, None), b"x" * 5000),
}


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_archives(tmp_path, kind, damage):
    path, data = tmp_path / f"b.{kind}", os.urandom(700)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as file:
            for name in "abcdefgh":
                file.writestr(name, data)
    else:
        tar(path, *"abcdefgh", mode=TARS[kind], data=data)
    raw = bytearray(path.read_bytes())
    DAMAGES[damage](raw)
    path.write_bytes(raw)
    with pytest.raises(AllranksError, match=r"b\.\S+ cannot be unpacked: \S") as caught:
        extract(path, tmp_path / "goal")
    assert caught.value.where == str(path)
    assert "truncated or damaged" in (caught.value.hint or "")


@pytest.mark.parametrize("at", [10, 1024 + 10, 1024 + 130])
def test_a_wrong_byte_in_a_tar_header(tmp_path, at):
    made = tar(tmp_path / "b.tar", "one", "two", "three")
    raw = bytearray(made.read_bytes())
    raw[at] ^= 255
    made.write_bytes(raw)
    with pytest.raises(AllranksError, match=r"b\.tar cannot be unpacked: bad checksum"):
        extract(made, tmp_path / "goal")


@pytest.mark.parametrize("kept", [1, 511, 512, 513, 1535, 1536, 1537, 2048, 3071, 3072])
def test_a_truncated_tar(tmp_path, kept):
    made = tar(tmp_path / "b.tar", "one", "two", data=b"y" * 1000)
    os.truncate(made, kept)
    with pytest.raises(AllranksError, match=r"b\.tar cannot be unpacked"):
        extract(made, tmp_path / "goal")


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz"])
def test_a_truncated_checksum(tmp_path, kind):
    made = tar(tmp_path / f"b.{kind}", "one", mode=TARS[kind])
    os.truncate(made, made.stat().st_size - 3)
    with pytest.raises(AllranksError, match="cannot be unpacked"):
        extract(made, tmp_path / "goal")


def test_invalid_headers(tmp_path):
    back, huge = entry("back"), entry("long", b"L")
    back.size, huge.size = -4096, 1 << 40
    for number, each in enumerate((back, huge)):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(each.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
        with pytest.raises(AllranksError, match=f"{number}.tar cannot be unpacked"):
            extract(path, tmp_path / "goal")


def test_data_after_the_end(tmp_path):
    made = tar(tmp_path / "b.tar", "x")
    with gzip.open(tmp_path / "b.tgz", "wb", compresslevel=1) as file:
        file.write(made.read_bytes())
        for _ in range(70):
            file.write(bytes(1 << 20))
    with pytest.raises(AllranksError, match="data after the end"):
        extract(tmp_path / "b.tgz", tmp_path / "goal")


FLIPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=8)


@pytest.mark.slow
@given(FLIPS, st.sampled_from(["gnu.tar", "pax.tar", "b.zip"]))
@settings(max_examples=300)
def test_random_damage_raises_only_our_error(flips, name):
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, name)
        names = ["n" * 180, "ü" * 120, "d/f"]
        if name == "b.zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
                for each in names:
                    zipped.writestr(each, each * 5)
        else:
            form = tarfile.GNU_FORMAT if name == "gnu.tar" else tarfile.PAX_FORMAT
            with tarfile.open(path, "w", format=form) as file:
                for each in names:
                    file.addfile(entry(each))
                file.addfile(link("l", "d/f"))
        raw = bytearray(path.read_bytes())
        for at, byte in flips:
            raw[at % len(raw)] = byte
        path.write_bytes(raw)
        with contextlib.suppress(AllranksError):
            extract(path, Path(made, "goal"))
        assert sorted(os.listdir(made)) in ([name], sorted(["goal", name]))
