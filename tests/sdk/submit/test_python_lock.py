"""The current Python as a list of packages, and wheels made again from what is installed."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from allranks.agent.environments import current_python
from allranks.sdk.submit.current_environment import current
from allranks.sdk.submit.python_lock import Lock, lock
from tests.wheels import machine_tag, wheel


@pytest.fixture
def venv(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment without pip, activated."""
    prefix = tmp_path / "en v"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("PYTHONPATH", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return prefix


def install(prefix: Path, *words: object) -> None:
    argv = [find_uv_bin(), "pip", "install", "--no-index", "--python", prefix, *words]
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


def site(prefix: Path) -> Path:
    (found,) = prefix.glob("lib/python3*/site-packages")
    return found


def put(prefix: Path, name: str, version: str = "1.0", **files: str) -> None:
    """A package as an index's."""
    info = site(prefix) / f"{name}-{version}.dist-info"
    info.mkdir()
    for file, text in {"INSTALLER": "pip\n", "RECORD": "", **files}.items():
        (info / file).write_text(text)


def now() -> Lock:
    made = lock(current())
    assert made is not None
    return made


def test_packages_of_an_index_are_named_by_version(venv):
    put(venv, "six", "1.17.0")
    put(venv, "ruamel.yaml", "0.18")
    made = now().python
    assert made.requirements == ("ruamel.yaml==0.18", "six==1.17.0")
    assert made.version == "{}.{}".format(*sys.version_info)
    assert current_python.is_here(made)


def test_it_is_another_one_once_something_is_installed(venv):
    before = now().python
    put(venv, "six", "1.17.0")
    assert not current_python.is_here(before)
    assert now().python.requirements == ("six==1.17.0",)


def test_addresses_are_kept_without_passwords(venv):
    archive = {
        "url": "https://me:pw@host/a-1.0-py3-none-any.whl",
        "archive_info": {"hashes": {"sha256": "ab"}},
    }
    commit = {
        "url": "https://host/repo.git",
        "vcs_info": {"vcs": "git", "commit_id": "c0ffee"},
        "subdirectory": "x",
    }
    put(venv, "a", **{"direct_url.json": json.dumps(archive)})
    put(venv, "b", **{"direct_url.json": json.dumps(commit)})
    assert now().python.requirements == (
        "a @ https://host/a-1.0-py3-none-any.whl#sha256=ab",
        "b @ git+https://host/repo.git@c0ffee#subdirectory=x",
    )


def test_a_package_of_a_signed_address_goes_along_itself(venv):
    origin = {"url": "https://host/a-1.0-py3-none-any.whl?sig=secret", "archive_info": {}}
    wheel_file = "Wheel-Version: 1.0\nTag: py3-none-any\n"
    put(venv, "a", **{"direct_url.json": json.dumps(origin), "WHEEL": wheel_file})
    made = now()
    assert len(made.wheels) == 1
    assert "secret" not in repr(made.python)


def test_the_node_decides_which_pytorch_it_gets(venv):
    for name, version in (("torch", "2.9.0+cu128"), ("nvidia_cublas_cu12", "12"), ("triton", "3")):
        put(venv, name, version)
    put(venv, "own", "1.0+mine")
    assert now().python.requirements == ("own==1.0+mine", "torch==2.9.0")


def test_a_wheel_of_this_machine_goes_along_also_when_its_file_is_gone(venv, tmp_path):
    file = wheel(tmp_path / "w", "apple", scripts={"bite": "apple:version"})
    install(venv, file)
    file.unlink()
    made = now()
    (packed,) = made.wheels
    assert packed.name == "apple-1.0-py3-none-any.whl"
    names = zipfile.ZipFile(packed).namelist()
    assert "apple.py" in names
    assert not any("bin" in name or "direct_url" in name for name in names)
    assert made == now(), "from the list that was kept"
    # The same content is the same wheel, whoever made it.
    again = tmp_path / "again"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", again], check=True)
    install(again, packed)
    (row,) = made.python.requirements
    assert row.startswith("apple @ file://${CURRENT_PYTHON_WHEELS}/apple-1.0-py3-none-any.whl#sha")


def test_what_was_compiled_here_is_named(venv, tmp_path):
    install(venv, wheel(tmp_path / "w", "apple", tag=machine_tag()))
    (note,) = now().python.notes
    assert note.startswith("compiled on this machine")
    assert note.endswith("apple")


def test_what_cannot_go_along_is_named_with_the_way_out(venv, tmp_path):
    (site(venv) / "mine.pth").write_text("import os\n")
    (venv / "conda-meta").mkdir()
    for name in ("ffmpeg-6.1-h1", "numpy-1.26.4-py311_0", "openssl-3.0-h2"):
        (venv / "conda-meta" / f"{name}.json").touch()
    origin = {"url": "file:///build/numpy", "dir_info": {}}
    put(venv, "numpy", "1.26.4", INSTALLER="conda", **{"direct_url.json": json.dumps(origin)})
    (site(venv) / "old-1.0-py3.11.egg-info").touch()
    made = now().python
    assert made.requirements == ("numpy==1.26.4",)
    text = "\n".join(made.notes)
    assert "does not get: ffmpeg (installed by conda" in text
    assert "does not get: mine.pth" in text
    assert "does not get: old (installed without" in text
    assert text.count("-e requirements.txt") == 3
    assert "openssl" not in text


def test_indexes_come_along_without_their_passwords(venv, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:pw@one/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two/simple?token=x file:///srv/three")
    monkeypatch.setenv("PIP_FIND_LINKS", "/srv/wheels")
    file = tmp_path / "user" / ".config" / "uv" / "uv.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[[index]]\nname = "x"\nurl = "https://four/simple"\n')
    put(venv, "six")
    made = now().python
    assert made.requirements == (
        "--index-url https://one/simple",
        "--extra-index-url https://four/simple",
        "--extra-index-url https://two/simple",
        "six==1.0",
    )
    for note, name in zip(made.notes, ("one", "two"), strict=True):
        assert f"password of https://{name}/simple stays" in note
