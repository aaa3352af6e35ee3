"""Files that another node of a session has sent."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from allranks.agent.inside import allranks_dev_files
from tests.hostile.harness import Place


def unpack(folder: Path, *entries: tarfile.TarInfo) -> int:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry)
    words = [sys.executable, "-I", "-S", allranks_dev_files.__file__, "unpack"]
    return subprocess.run(words, cwd=folder, input=out.getvalue(), stderr=-1).returncode


def link(name: str, target: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, target
    return made


@pytest.mark.parametrize("name", ["../outside/secret", "l/secret", "{outside}/secret", "../beside"])
def test_nothing_is_written_outside(tmp_path: Path, name: str):
    place = Place(tmp_path)
    before = place.surroundings()
    files = (link("l", str(place.outside)), tarfile.TarInfo(name.format(outside=place.outside)))
    assert unpack(place.goal, *files) != 0
    assert place.surroundings() == before


def test_files_replace_those_that_are_there(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").write_text("old")
    assert unpack(tmp_path, tarfile.TarInfo("a"), tarfile.TarInfo("d/e"), link("l", "/x")) == 0
    assert (tmp_path / "b").read_text() == "old"
    assert (tmp_path / "a").read_bytes() == (tmp_path / "d" / "e").read_bytes() == b""
    assert (tmp_path / "l").is_symlink()
