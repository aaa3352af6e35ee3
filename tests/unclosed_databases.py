"""A pytest plugin: a test fails if it opens an SQLite database in this process and never closes it.

From Python 3.13 on such a connection is a warning, but only once it is collected. It is in a cycle
with its own cache of statements, so that is later, and another test fails.
"""

import functools
import gc
import os
import sqlite3
from collections.abc import Generator
from typing import Any

import pytest

_open = dict[int, str]()  # of each connection the test that opened it
_leaked = list[str]()


class _Connection(sqlite3.Connection):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _open[id(self)] = os.environ.get("PYTEST_CURRENT_TEST", "an import")

    def close(self) -> None:
        super().close()
        _open.pop(id(self), None)

    def __del__(self) -> None:  # instead of the warning
        if id(self) in _open:
            _leaked.append(_open.pop(id(self)))


_connect = functools.partial(sqlite3.connect, factory=_Connection)
# SQLAlchemy takes the second.
sqlite3.connect = sqlite3.dbapi2.connect = _connect  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    yield
    last = nextitem is None or nextitem.path != item.path
    if any(last or test.startswith(item.nodeid) for test in _open.values()):
        getattr(item, "funcargs", {}).clear()  # what fixtures made
        gc.collect()  # what is still used, as by a fixture of the module, stays
    if _leaked:
        tests = ", ".join(sorted(set(_leaked)))
        _leaked.clear()
        pytest.fail(f"a database was opened and never closed: {tests}", pytrace=False)
