"""The agent's code in the home: one copy for each content, whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.engines import agent_bundle, pinned_code


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files, whose place is the test's."""
    package = tmp_path / "site-packages" / "allranks"
    (package / "agent").mkdir(parents=True)
    (package / "version.py").write_text("VERSION = 1\n")
    (package / "agent" / "late.py").write_text("NAME = 'late'\n")
    monkeypatch.setattr(
        agent_bundle,
        "sources",
        lambda: iter((f"allranks/{path.name}", path) for path in sorted(package.rglob("*.py"))),
    )
    monkeypatch.setattr(pinned_code, "_own", {})
    return package


def next_process(folder: Path) -> Path:
    """The copy of a server that starts now."""
    pinned_code._own.clear()
    return pinned_code.make(folder)


def contents(copy: Path) -> set[str]:
    return {path.read_text() for path in (copy / "allranks").glob("*.py")}


def upgrade(path: Path, text: str) -> None:
    """As an installer does: another file of that name."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def test_a_copy_stays_as_it_is_when_another_version_is_installed(installed, tmp_path):
    first = pinned_code.make(tmp_path / "pinned")
    upgrade(installed / "version.py", "VERSION = 2\n")
    assert pinned_code.make(tmp_path / "pinned") == first  # this process is of the first version
    second = next_process(tmp_path / "pinned")
    assert contents(first) == {"VERSION = 1\n", "NAME = 'late'\n"}
    assert contents(second) == {"VERSION = 2\n", "NAME = 'late'\n"}
    # What was used last is the newest but one, which garbage collection goes by.
    assert pinned_code.copies(tmp_path / "pinned") == [first, second]
    upgrade(installed / "version.py", "VERSION = 1\n")
    assert next_process(tmp_path / "pinned") == first
    assert pinned_code.copies(tmp_path / "pinned") == [second, first]


def test_files_are_read_only_when_one_has_changed(installed, tmp_path, monkeypatch):
    first = pinned_code.make(tmp_path / "pinned")
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    assert next_process(tmp_path / "pinned") == first


def test_only_files_that_installers_own_have_two_names(installed, tmp_path, monkeypatch):
    copy = pinned_code.make(tmp_path / "pinned")
    assert (copy / "allranks" / "late.py").samefile(installed / "agent" / "late.py")
    # A checkout, whose files editors write to.
    checkout = tmp_path / "checkout.py"
    checkout.write_text("old\n")
    monkeypatch.setattr(agent_bundle, "sources", lambda: iter([("allranks/a.py", checkout)]))
    copy = next_process(tmp_path / "pinned")
    checkout.write_text("new\n")
    assert contents(copy) == {"old\n"}


def test_a_disk_without_hard_links(installed, tmp_path, monkeypatch):
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    copy = pinned_code.make(tmp_path / "pinned")
    assert contents(copy) == {"VERSION = 1\n", "NAME = 'late'\n"}
    assert (copy / "allranks" / "late.py").stat().st_nlink == 1


def test_a_full_disk_leaves_nothing_and_stops_no_job(installed, tmp_path, monkeypatch, caplog):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    assert pinned_code.pin(tmp_path / "pinned") is None
    assert [*(tmp_path / "pinned").iterdir()] == []
    assert "No space left on device" in caplog.text


def test_files_that_somebody_deleted_come_back(installed, tmp_path):
    copy = pinned_code.make(tmp_path / "pinned")
    (copy / "allranks" / "late.py").unlink()
    assert next_process(tmp_path / "pinned") == copy
    assert contents(copy) == {"VERSION = 1\n", "NAME = 'late'\n"}
    shutil.rmtree(copy)
    assert pinned_code.make(tmp_path / "pinned") == copy
    assert contents(copy) == {"VERSION = 1\n", "NAME = 'late'\n"}


def test_of_two_servers_that_make_it_at_once_one_does(installed, tmp_path):
    sources = [*agent_bundle.sources()]
    copy = tmp_path / "pinned" / "abc"
    pinned_code._create(copy, sources, "stamp")
    pinned_code._create(copy, sources, "stamp")
    assert [*copy.parent.iterdir()] == [copy]


@pytest.mark.medium
def test_its_byte_code_is_used_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(pinned_code, "_own", {})
    copy = pinned_code.make(tmp_path / "pinned")
    # As installers and earlier imports do.
    program = "import allranks.agent.processes.keeper as m; print(m.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-v", "-c", program],
        env={"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(copy / "allranks/agent/processes/keeper.py")
    assert f"wrote '{copy}" not in done.stderr
