"""Who is signalled as the holder of a lock: what a file says is not believed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import file_locks
from allranks.engines.local import warm_processes
from allranks.sdk.connection import find_server
from allranks.server.endpoints import router_process
from allranks.settings import Home


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that would be signalled. None is."""
    pids: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: pids.append(pid))
    return pids


@pytest.mark.parametrize("pid", [-1, 0, "other", 1 << 70, "x", None, [1], True])
def test_only_who_has_the_lock_is_signalled(
    tmp_path: Path, signalled: list[int], monkeypatch: pytest.MonkeyPatch, pid: object
) -> None:
    """-1 is all processes that a person has, and 0 those of its own group."""
    other = subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)
    text = str(other.pid if pid == "other" else pid).replace("'", '"')
    text = {"x": '"x"', "None": "null", "True": "true"}.get(text, text)
    home = Home(tmp_path)
    locks = [home.lock, home.serve / "lock", tmp_path / "warm" / "of.lock"]
    for lock in locks:
        lock.parent.mkdir(exist_ok=True)
    descriptors = [file_locks.take(lock) for lock in locks]
    home.server.write_text(f'{{"pid": {text}, "url": "http://127.0.0.1:1"}}')
    (home.serve / "address").write_text(f'{{"pid": {text}, "host": "127.0.0.1", "port": 1}}')
    locks[2].write_text(text)
    monkeypatch.setattr(router_process, "_END", 0.0)
    find_server.end(home, signal.SIGKILL)
    router_process.RouterProcess(home.serve).end()
    warm_processes.end(locks[2].parent)
    assert signalled == []
    other.communicate(b"\n")
    assert None not in descriptors


def test_who_has_the_lock_is_signalled(tmp_path: Path, signalled: list[int]) -> None:
    home = Home(tmp_path)
    assert file_locks.take(home.lock) is not None
    home.server.write_text(f'{{"pid": {os.getpid()}}}')
    find_server.end(home, signal.SIGTERM)
    assert signalled == [os.getpid()]


@pytest.mark.parametrize("text", ["[]", "5", "[" * 100_000, '["ab"]'])
def test_a_damaged_file_of_the_server_is_none(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    home.server.write_text(text)
    assert find_server.look(home) == (None, None, None, False, None)
