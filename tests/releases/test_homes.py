"""Homes that released versions made: this version opens each, answers the same, and goes on."""

import contextlib
import json
import lzma
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.server.endpoints.router_table import router_table
from allranks.store.database import open_database, opened_database
from allranks.store.endpoints import Endpoints
from allranks.store.key_values import Settings
from tests.releases.names import names
from tests.schemas import schema
from tests.support import Allranks, answer

RELEASES = sorted(path.parent for path in Path(__file__).parent.glob("*/database.sql"))
# May be worded better, or are of the running server; times of files are those of the checkout.
FREE = {"hint", "mtime_ns", "scoring_uri", "url", "status_reason"}


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def root(release: Path, home: Path) -> Path:
    """The folder with what the home's jobs need, where ``home`` is as the release left it."""
    root = home.parent / "it's root"
    (root / "data").mkdir(parents=True)
    (root / "data" / "words.txt").write_text("words\n")
    (root / "venv").symlink_to(sys.prefix)
    shutil.copytree(release / "files", home)
    for name in ("token", "secrets.key"):
        (home / name).chmod(0o600)
    lines = (release / "database.sql").read_text()
    for word, path in {"@HOME@": home, "@ROOT@": root}.items():
        lines = lines.replace(word, str(path).replace("'", "''"))
    with contextlib.closing(sqlite3.connect(home / "allranks.db")) as database:
        database.executescript(lines)
    return root


def same(before: Any, now: Any, place: str) -> list[str]:
    """Where an answer lacks what it had: later versions may add keys."""
    if isinstance(before, dict) and isinstance(now, dict):
        lost = [f"{place}.{key} is gone" for key in before if key not in now]
        kept = before.keys() & now.keys() - FREE
        return lost + [
            line for key in kept for line in same(before[key], now[key], f"{place}.{key}")
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [line for i, (a, b) in pairs for line in same(a, b, f"{place}[{i}]")]
    return [] if before == now else [f"{place} was {before!r}, is {now!r}"]


def test_what_is_lost_is_named() -> None:
    before = {"jobs": [{"name": "a", "hint": "b"}]}
    assert same(before, {"jobs": [{"name": "a", "hint": "c", "new": 1}], "new": 1}, "") == []
    assert same(before, {"jobs": [{"name": "a"}]}, "") == [".jobs[0].hint is gone"]
    assert same(before, {"jobs": [{"name": "c", "hint": 1}]}, "") == [
        ".jobs[0].name was 'a', is 'c'"
    ]
    assert same(before, {"jobs": []}, "") != []


@pytest.mark.medium
def test_no_name_is_gone(release: Path) -> None:
    now = names()
    before: dict[str, list[str]] = json.loads((release / "names.json").read_text())
    gone = {kind: {*words} - {*now.get(kind, ())} for kind, words in before.items()}
    assert {kind: words for kind, words in gone.items() if words} == {}


@pytest.mark.slow
def test_answers_stay(release: Path, home: Path, root: Path, allranks: Allranks) -> None:
    before = json.loads((release / "answers.json").read_text())
    text = json.dumps([answer(allranks, *question.split()) for question in before])
    # The last is in packed events, which keep what they had.
    places = {home: "@HOME@", root: "@ROOT@", f"/tmp/allranks-{release.name}": "@ROOT@"}
    for path, word in places.items():
        text = text.replace(str(path), word)
    now = dict(zip(before, json.loads(text), strict=True))
    assert same(before, now, "") == []


@pytest.mark.slow
@pytest.mark.end_to_end
def test_it_goes_on(home: Path, root: Path, allranks: Allranks) -> None:
    # It ran when the home was left: its node is lost, and it starts again.
    assert allranks("job", "wait", "running").returncode == 0
    assert answer(allranks, "job", "show", "running")["attempts"] == 2
    assert "attempt 2" in allranks("job", "logs", "running").stdout
    # From its state, with its input.
    done = allranks("job", "restart", "failed", "--stream")
    assert "went on from 3 with words" in done.stdout, done.stderr
    assert allranks("job", "restart", "search", "--trials", "3", "--stream").returncode == 0
    assert len(answer(allranks, "job", "show", "search")["trials"]) == 3
    assert allranks("job", "restart", "pipe", "--stream").returncode == 0
    named = ("--state", "plain", "-i", "words=azureml:words:1", "-i", "model=azureml:birds:1")
    script = 'cat "$ALLRANKS_STATE_DIR/step" "${{inputs.words}}" "${{inputs.model}}"'
    done = allranks("run", *named, "--", "bash", "-c", script)
    assert (done.returncode, done.stdout) == (0, "3words\nweights of step 3\n"), done.stderr
    for words in ("schedule resume nightly", "job restore hidden", "job delete hidden --yes"):
        assert allranks(*words.split()).returncode == 0
    assert allranks("gc", "--yes").returncode == 0
    assert allranks("model", "download", "birds", "-p", root / "model").returncode == 0
    (file,) = [path for path in (root / "model").rglob("*") if path.is_file()]
    assert file.read_text() == "weights of step 3"


@pytest.mark.slow
def test_its_backup_can_be_restored(release: Path, home: Path, allranks: Allranks) -> None:
    backup = home.parent / "backup.tar"
    backup.write_bytes(lzma.decompress((release / "backup.tar.xz").read_bytes()))
    done = allranks("server", "restore", "--yes", backup)
    assert done.returncode == 0, done.stderr
    assert "loss: 0.5" in allranks("job", "logs", "plain").stdout
    assert answer(allranks, "model", "show", "birds")["labels"] == ["best"]


@pytest.mark.medium
def test_the_router_answers_as_before_with_its_backup(
    release: Path, home: Path, allranks: Allranks
) -> None:
    """Two deployments with 90 and 10 percent, of which one was rolled back and one is about to
    fail. The table is the one that this release made of it."""
    if not (release / "deployments.tar.xz").exists():
        pytest.skip("deployments are as in the release before")
    backup = home.parent / "backup.tar"
    backup.write_bytes(lzma.decompress((release / "deployments.tar.xz").read_bytes()))
    done = allranks("server", "restore", "--yes", backup)
    assert done.returncode == 0, done.stderr
    with opened_database(home / "allranks.db") as database:
        endpoints = Endpoints(database, Settings(database), None)  # type: ignore[arg-type]
        table = json.dumps(router_table(endpoints.all()), indent=1)
    assert table == (release / "router-table.json").read_text()


@pytest.mark.medium
def test_an_upgraded_database_is_as_a_new_one(home: Path, root: Path, tmp_path: Path) -> None:
    schemas = []
    for path in (home / "allranks.db", tmp_path / "new.db"):
        engine = open_database(path)
        schemas.append(schema(engine))
        engine.dispose()
    assert schemas[0] == schemas[1]
