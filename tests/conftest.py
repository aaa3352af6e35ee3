"""Fixtures for every test: a home of its own with a hostile name, and the real CLI in it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

CLI = "import sys; from allranks.cli.main import main; sys.exit(main())"

Allranks = Callable[..., "subprocess.CompletedProcess[str]"]


def processes_of(home: Path) -> list[psutil.Process]:
    """Every other process that names ``home`` in its environment or on its command line."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:  # gone meanwhile, or not ours to read
            continue
        if process.pid != os.getpid() and any(str(home) in word for word in words):
            found.append(process)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ALLRANKS_HOME that does not exist yet; afterwards nothing of it may be running."""
    path = tmp_path / "ho'me x"
    for name in [name for name in os.environ if name.startswith("ALLRANKS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALLRANKS_HOME", str(path))
    # The environment `current` of the tests' jobs is the one that runs the tests.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    yield path
    if (path / "server.json").exists():
        subprocess.run(
            [sys.executable, "-c", CLI, "server", "stop"],
            env={**os.environ, "ALLRANKS_HOME": str(path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
    _, left = psutil.wait_procs(processes_of(path), timeout=5)
    told = [str(process) for process in left]
    for process in left:
        process.kill()
    assert not told, "processes of the home are still running after the test"


@pytest.fixture
def allranks(home: Path) -> Allranks:
    """Run the command line as a user does; keywords go to ``subprocess.run``."""

    def run(*words: str | Path, **options: object) -> "subprocess.CompletedProcess[str]":
        given = {"stdin": subprocess.DEVNULL} if "input" not in options else {}
        return subprocess.run(
            [sys.executable, "-c", CLI, *map(str, words)],
            **{"capture_output": True, "text": True, "timeout": 60, **given, **options},
        )

    return run
