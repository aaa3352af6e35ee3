"""Fixtures for every test: homes with hostile names, and the real command line in them."""

import ast
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import Allranks, command_line, environment, leave_nothing, none_left

pytest_plugins = ["tests.module_times", "tests.unclosed_databases"]

# Where a shell runs the tests in the background it has them, and all that they start, ignore these.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test has a time limit for each example: the machine may be busy.
hypothesis.settings.register_profile("allranks", deadline=None)
hypothesis.settings.load_profile("allranks")

BEGAN = time.monotonic()

_parse = ast.parse


def _parse_again(*args: Any, **options: Any) -> Any:
    """As ast.parse. CPython 3.11 counts the depth of the trees of all threads in one number, and
    raises SystemError when two are made at once: a server's thread prints a traceback while pytest
    prints a failure, which then ended the whole run."""
    for _ in range(20):
        try:
            return _parse(*args, **options)
        except SystemError:
            time.sleep(0.01)
    return _parse(*args, **options)


ast.parse = _parse_again


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=12, help="so many rounds of chaos (12)")
    parser.addoption("--first", type=int, default=0, help="the seed of the first of them (0)")
    parser.addoption("--minutes", type=float, help="after so many begin no test marked 'slow'")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("minutes")
    late = minutes and time.monotonic() - BEGAN > minutes * 60
    if late and item.get_closest_marker("slow") and not item.get_closest_marker("end_to_end"):
        pytest.skip(f"no time left: --minutes {minutes:g}")


@pytest.fixture(scope="module")
def never_made() -> Iterator[list[Path]]:
    """Homes that no test made a folder for. To look for their processes takes longer than most of
    these tests, so it is done once, after the module."""
    homes = list[Path]()
    yield homes
    none_left(*homes)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, never_made: list[Path]) -> Iterator[Path]:
    """An ALLRANKS_HOME that does not exist yet; afterwards nothing of it may be running."""
    path = tmp_path / "ho'me x"
    for name in [name for name in os.environ if name.startswith("ALLRANKS_")]:
        if not name.startswith("ALLRANKS_TEST_"):  # ours, not the product's
            monkeypatch.delenv(name)
    for name, value in environment(path).items():
        monkeypatch.setenv(name, value)
    yield path
    if path.exists():
        leave_nothing(path)
    else:
        never_made.append(path)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """An empty folder to run from, of a hostile name."""
    path = tmp_path / "co de; echo 'x"
    path.mkdir()
    return path


@pytest.fixture
def allranks(home: Path, code: Path) -> Allranks:
    """The command line in a home of the test's own, run from ``code``."""
    return command_line(home, code)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL that runs, for the tests that do not mind one another."""
    from tests import postgres

    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with postgres.cluster() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a new database is to be, of each kind."""
    if request.param == "sqlite":
        return tmp_path / "a b.db"
    return str(request.getfixturevalue("postgres").database())


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One home with a server that is running, for the tests that do not mind one another."""
    path = tmp_path_factory.mktemp("shared") / "h'ome $(x)"
    # Some tests use the home from their own process: it would start a server for fewer ranks.
    started = command_line(path, path.parent)("server", "start")
    assert started.returncode == 0, started.stderr
    yield path
    leave_nothing(path)


@pytest.fixture
def shared(shared_home: Path, code: Path) -> Allranks:
    """The command line in the shared home, run from ``code``."""
    return command_line(shared_home, code)
