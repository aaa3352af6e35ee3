"""A home with many jobs: lists, filters, one job; the loop; clean-up and backups; the database.

The jobs are copies of three real ones, a completed, a failed and a queued one: of their rows and,
of the queued one, of its place in the engine. Copies have no folders of logs and files.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sqlalchemy import Column, Table, func, select, text

from allranks import settings
from allranks.http_client import Client
from allranks.store import database as db
from allranks.store import tables
from allranks.store.compaction import compact
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, table

DONE, BAD, WAITS = "original-done", "original-failed", "original-queued"
_SCRIPT = """
import sys
for n in range(20):
    print(f"loss={1 / (n + 1):.4f}")
sys.exit(int(sys.argv[1]))
"""
_WHOLE = """
name: {name}
command: sleep 3600
environment: current
resources: {{properties: {{local: {{cpus: {cpus}}}}}}}
"""
_ASKED, _WATCHED = 9, 15.0
_COPIED = (
    tables.jobs,
    tables.job_annotations,
    tables.events,
    tables.series,
    tables.points,
    tables.feeds,
)
# What is asked; those of the first page have to take less than a tenth of a second.
_FIRST = {
    "list": "jobs",
    "list with metrics, as the page asks": "jobs?metrics=true&limit=51",
    "one status": "jobs?status=Failed",
    "one experiment": "jobs?experiment=experiment-7",
    "a tag": "jobs?tag=team=t3",
    "a tag that no job has": "jobs?tag=nosuch",
    "part of a name": "jobs?name=copy-0099*",
    "by name": "jobs?sort=name",
    "by duration": "jobs?sort=-duration",
    "by a metric": "jobs?metric=loss%3C0.1&sort=loss",
    "older ones": "jobs?until={middle}",
    "one job": "jobs/" + DONE,
    "a prefix": "resolve?job=copy-00000123-",
    "the last job": "resolve?job=@last",
}


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--ended", type=int, default=100_000, metavar="N", help="ended jobs (100000)")
    add("--waiting", type=int, default=10_000, metavar="N", help="queued jobs (10000)")
    add("--database", metavar="URL", help="an empty PostgreSQL database (SQLite)")


def run(given: argparse.Namespace) -> Result:
    found: dict[str, float] = {}
    with Home() as home:
        if given.database:
            home.env["ALLRANKS_DATABASE"] = given.database
        copies = _Copies(home, given.database)
        _originals(home)
        before = copies.bytes()
        for part in ("half", "all"):
            copies.make(DONE, given.ended * 9 // 20)
            copies.make(BAD, given.ended // 20)
            found |= {f"{what}, {part}": value for what, value in _whole_home(home).items()}
        found["bytes of the database a job"] = (copies.bytes() - before) / given.ended
        found["to compact them, s"] = procs.timed(copies.compact)
        found["bytes of the database a job, compact"] = (copies.bytes() - before) / given.ended
        found |= _asked(home) | _idle(home, "idle")
        print(table(("before any is queued", ""), _rows(found)), flush=True)
        _queued(home, copies, given.waiting)
        queued = f"{given.waiting} queued"
        found |= {f"{what}, {queued}": value for what, value in _asked(home).items()}
        found |= _idle(home, queued)
        _kill(home)
        print(table(("all", ""), _rows(found)), flush=True)
    return _result(given, found)


def _originals(home: Home) -> None:
    (home.work / "script.py").write_text(_SCRIPT)
    words = ["run", "-q", "-m", r"loss=loss=(\S+)"]
    for name, code in ((DONE, "0"), (BAD, "3")):
        argv = home.argv(*words, "--name", name, "--", sys.executable, "script.py", code)
        subprocess.run(argv, cwd=home.work, env=home.env, capture_output=True, check=False)
    home.allranks("server", "stop")


def _queued(home: Home, copies: _Copies, count: int) -> None:
    """A job that runs and takes the whole machine, and many that wait for it."""
    file, cpus = home.work / "whole.yml", len(os.sched_getaffinity(0))
    for name in ("holder", WAITS):
        file.write_text(_WHOLE.format(name=name, cpus=cpus))
        home.allranks("job", "create", "-f", file)
    until = time.monotonic() + 60
    while home.told("job", "show", WAITS, "--json")["status"] != "Queued":
        assert time.monotonic() < until
        time.sleep(0.1)
    _kill(home)
    copies.make(WAITS, count)
    engine = home.folder / "engines" / "local"
    original = (engine / f"{WAITS}.1" / "gang.json").read_text()
    for name in copies.names(WAITS):
        (engine / f"{name}.1").mkdir()
        (engine / f"{name}.1" / "gang.json").write_text(original.replace(WAITS, name))
    home.allranks("server", "start")


class _Copies:
    """Copies of jobs in the database, while no server runs."""

    def __init__(self, home: Home, url: str | None) -> None:
        self._where = url or home.folder / "allranks.db"
        self._made: dict[str, list[str]] = {}
        self._first = time.time() - 1e6

    def names(self, original: str) -> list[str]:
        return self._made[original]

    def bytes(self) -> float:
        engine = db.open_database(self._where)
        with engine.connect() as connection:
            if isinstance(self._where, str):
                size = connection.execute(text("SELECT pg_database_size(current_database())"))
                return float(size.scalar_one())
            pages = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, "
            size = connection.execute(text(f"{pages} pragma_freelist_count, pragma_page_size"))
            return float(size.scalar_one())

    def compact(self) -> None:
        """As the server does it a minute after their end, without its pauses."""
        engine = db.open_database(self._where)
        compact(engine, -1000.0, threading.Event(), pause=0.0)  # copies end later
        if engine.dialect.name == "postgresql":  # it keeps space for new rows otherwise
            with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                connection.exec_driver_sql("VACUUM FULL")
                # By itself, some time: until then, an index does not do without the rows.
                connection.exec_driver_sql("VACUUM ANALYZE")
        engine.dispose()

    def make(self, original: str, count: int) -> None:
        engine = db.open_database(self._where)
        first = sum(map(len, self._made.values())) + 1
        names = [f"copy-{number:08}-x" for number in range(first, first + count)]
        self._made.setdefault(original, []).extend(names)
        with engine.begin() as connection:
            greatest = {
                each: connection.execute(select(func.max(each.c.id))).scalar_one() or 0
                for each in (tables.jobs, tables.events, tables.series)
            }
            copy = _Copy(original, first, count, greatest, engine.dialect.name == "postgresql")
            for each in _COPIED:
                statement = copy.statement(each, self._first)
                connection.exec_driver_sql(
                    statement.replace("%", "%%") if copy.on_postgres else statement
                )
            db.reset_sequences(connection, [*greatest])
            if copy.on_postgres:  # which does so by itself, some time
                connection.exec_driver_sql("ANALYZE")
        engine.dispose()


class _Copy(NamedTuple):
    """Statements that insert ``copies`` copies of a job, with numbers from ``first``. ``greatest``:
    the ids that are taken."""

    original: str
    first: int
    copies: int
    greatest: Mapping[Table, int]
    on_postgres: bool

    def statement(self, each: Table, created: float) -> str:
        name = "'copy-' || substr(CAST(100000000 + k AS TEXT), 2) || '-x'"
        values = {c.name: self._value(c, name) for c in each.columns}
        job = f"(SELECT id FROM jobs WHERE name = '{self.original}')"
        table = each.name
        where = f"old.job_id = {job}"
        if each is tables.jobs:
            values |= {"id": self._id(each, "0", 1), "created_at": f"{created} + k"}
            values |= {"experiment": "'experiment-' || (k % 50)"}
            values |= {"ended_at": "old.ended_at + k % 1000"}
            where = f"old.id = {job}"
        elif each is tables.points:
            numbered = self._numbered(tables.series, job)
            table = f"points old JOIN {numbered} s ON s.id = old.series_id"
            values |= {"series_id": self._id(tables.series, "s.ordinal", "s.total")}
            where = "1 = 1"
        else:
            values |= {"job_id": self._id(tables.jobs, "0", 1)}
            if each in self.greatest:
                table = f"{self._numbered(each, job)} old"
                values |= {"id": self._id(each, "old.ordinal", "old.total")}
                where = "1 = 1"
        if each is tables.job_annotations:
            tags = """'{"team": "t' || (k % 20) || '"}'"""
            values |= {"tags": f"CAST({tags} AS JSON)" if self.on_postgres else tags}
        if " old" not in table:
            table += " old"
        last = self.first + self.copies - 1
        columns = ", ".join(f'"{column}"' for column in values)
        return (
            f"INSERT INTO {each.name} ({columns}) "
            f"WITH RECURSIVE n(k) AS (SELECT {self.first} UNION ALL SELECT k + 1 FROM n "
            f"WHERE k < {last}) SELECT {', '.join(values.values())} FROM n, {table} WHERE {where}"
        )

    def _value(self, column: Column[Any], name: str) -> str:
        kind = str(column.type)
        if not kind.startswith(("JSON", "VARCHAR", "TEXT")):
            return f'old."{column.name}"'
        value = f"replace(CAST(old.{column.name} AS TEXT), '{self.original}', {name})"
        return f"CAST({value} AS JSON)" if self.on_postgres and kind == "JSON" else value

    def _id(self, each: Table, ordinal: str, total: object) -> str:
        return f"{self.greatest[each]} + 1 + (k - {self.first}) * {total} + {ordinal}"

    def _numbered(self, each: Table, job: str) -> str:
        """The job's rows of a table, with their place among them and their number."""
        return (
            f"(SELECT *, row_number() OVER (ORDER BY id) - 1 AS ordinal, count(*) OVER () AS total "
            f"FROM {each.name} WHERE job_id = {job})"
        )


def _whole_home(home: Home) -> dict[str, float]:
    """What has to look at each job, once."""
    home.allranks("server", "start")
    backup = home.work / "backup.tar"
    found = {
        "gc --dry-run, s": procs.timed(partial(home.allranks, "gc", "--dry-run")),
        "server backup, s": procs.timed(partial(home.allranks, "server", "backup", backup)),
    }
    backup.unlink()
    home.allranks("server", "stop")
    found["server start, s"] = procs.timed(partial(home.allranks, "server", "start"))
    home.allranks("server", "stop")
    return found


def _asked(home: Home) -> dict[str, float]:
    """The median seconds of each question to a server that runs, and of `job list` as typed."""
    home.allranks("server", "start")
    url = home.told("server", "status", "--json")["url"]
    token = settings.Home(home.folder).token.read_text().strip()
    found = {}
    with Client(url, token, timeout=60.0) as client:
        newest = client.json("GET", "/api/v1/jobs?limit=1")[0]["created_at"]
        for what, path in _FIRST.items():
            path = f"/api/v1/{path.format(middle=_before(newest))}"
            client.call("GET", path)
            found[what] = _median(partial(client.call, "GET", path))
    found["allranks job list, as typed"] = _median(partial(home.allranks, "job", "list"))
    return found


def _before(newest: Any) -> float:
    from datetime import datetime

    at = datetime.fromisoformat(newest).timestamp() if isinstance(newest, str) else float(newest)
    return at - 60_000


def _median(ask: Callable[[], object]) -> float:
    return median(procs.timed(ask) for _ in range(_ASKED))


def _idle(home: Home, when: str) -> dict[str, float]:
    """CPU and memory of the server while nobody asks."""
    pid = home.told("server", "status", "--json")["pid"]
    time.sleep(3.0)
    began, spent = time.monotonic(), procs.running_seconds(pid)
    time.sleep(_WATCHED)
    share = (procs.running_seconds(pid) - spent) / (time.monotonic() - began)
    return {
        f"server, {when}: % of a core": 100 * share,
        f"server, {when}: MB": procs.resident_mb(pid),
    }


def _kill(home: Home) -> None:
    """End the server alone; its jobs go on."""
    pid = home.told("server", "status", "--json")["pid"]
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.05)


def _rows(found: dict[str, float]) -> list[tuple[str, str]]:
    return [(what, f"{value:.4g}") for what, value in found.items()]


def _by_unit(found: dict[str, float]) -> dict[str, dict[str, list[float]]]:
    """By the unit after a name's last colon, seconds where there is none."""
    units: dict[str, dict[str, list[float]]] = {}
    for name, value in found.items():
        what, _, unit = name.rpartition(": ")
        known = unit in ("MB", "% of a core")
        units.setdefault(unit if known else "s", {})[what if known else name] = [value]
    return units


def _result(given: argparse.Namespace, found: dict[str, float]) -> Result:
    first = [(what, found[what]) for what in _FIRST]
    slowest, seconds = max(first, key=lambda each: each[1])
    return Result(
        name="records",
        text=table((f"{given.ended} ended jobs, seconds unless named", "found"), _rows(found)),
        samples=_by_unit(found),
        data={"ended": given.ended, "waiting": given.waiting},
        bars=[
            Bar(what=f"the slowest question, {slowest}, s", found=seconds, most=0.1),
            Bar(
                what="an idle server, % of a core",
                found=found["server, idle: % of a core"],
                most=0.2,
            ),
        ],
    )
