"""The space that a home keeps for its own words."""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from allranks import disk_space
from allranks.disk_space import RESERVE
from allranks.server.loop import disk_reserve
from allranks.server.loop.disk_reserve import DiskReserve
from allranks.store.database import opened_database


def free_pages(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA freelist_count").fetchone()[0])


def test_it_is_made_once_and_again_when_it_was_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "allranks.db"
    with opened_database(path) as database:
        reserve = DiskReserve(tmp_path, database)
        reserve.fill()
        pages, log = free_pages(path), path.with_name("allranks.db-wal").stat().st_size
        assert pages * 4096 >= 6 << 20
        assert log >= 6 << 20
        reserve.fill()
        assert free_pages(path) == pages
        with closing(sqlite3.connect(path)) as connection:
            assert not connection.execute(
                "select 1 from sqlite_master where name = 'reserve'"
            ).fetchall()
        disk_space.release_if_full(tmp_path)
        assert (tmp_path / RESERVE).stat().st_blocks * 512 >= 4 << 20
        monkeypatch.setattr(disk_space, "is_full", lambda _: True)
        disk_space.release_if_full(tmp_path)
        disk_space.release_if_full(tmp_path)
        assert not (tmp_path / RESERVE).exists()
        little = SimpleNamespace(free=20 << 20)
        monkeypatch.setattr(disk_reserve.shutil, "disk_usage", lambda _: little)
        reserve.fill()
        assert not (tmp_path / RESERVE).exists()
        monkeypatch.undo()
        reserve.fill()
        assert (tmp_path / RESERVE).exists()
