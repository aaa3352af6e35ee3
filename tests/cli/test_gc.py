"""`allranks gc` with a real server: what goes, what stays, and what is said of it."""

import json
import os
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from allranks.cli.admin.gc import _seconds
from allranks.errors import UsageError
from allranks.http_client import Client
from tests.support import Allranks, answer, commit_all, until
from tests.wheels import wheel

pytestmark = pytest.mark.slow

OLD = time.time() - 40 * 86400
A = "a" * 24
# Files of the server itself, which it writes as it likes.
OWN = ("allranks.db", "allranks.db-wal", "allranks.db-shm", "server.log", "server.json")


@pytest.fixture
def requirements(code: Path, tmp_path: Path) -> Path:
    wheel(tmp_path / "wheels", "apple", "1.0")
    path = code / "requirements.txt"
    path.write_text(f"--no-index\n--find-links {tmp_path / 'wheels'}\napple\n")
    return path


def cleared(allranks: Allranks, *words: object, code: int = 0) -> dict:
    return answer(allranks, "gc", "--yes", *words, code=code)


def tree(root: Path) -> list[tuple[str, int, int, int]]:
    """Every file as `ls` would show it."""
    found = [(path, path.lstat()) for path in sorted(root.rglob("*")) if path.name not in OWN]
    return [(str(path), s.st_size, s.st_mtime_ns, s.st_ino) for path, s in found]


def age(root: Path) -> None:
    for path in [*root.rglob("*"), root]:
        os.utime(path, (OLD, OLD), follow_symlinks=False)


def environments(home: Path) -> list[Path]:
    return [each.parent for each in home.glob("environments/*/allranks.json")]


def clutter(home: Path) -> None:
    """One of each kind that nobody needs; for a server that has answered already, and has looked
    for what an earlier one left."""
    digest = "0" * 64
    for name in (
        f"environments/{A}/allranks.json",
        f"environments/{'b' * 24}.host.x1/environment/pyvenv.cfg",
        f"environments/{'c' * 24}.log",
        f"blobs/00/{digest}",
        f"code/{'d' * 20}/repository/HEAD",
        "nodes/nobody.1/0/outbox.jsonl",
    ):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"recipe": "of nobody"}')
    for name in ("environments", "blobs/00", "code", "nodes/nobody.1"):
        age(home / name)


def test_what_a_running_job_uses_stays_and_a_restart_finds_or_makes_it_again(
    allranks, home, code, requirements
):
    (code / "train.py").write_text(
        "import os, sys, time\n"
        "print('started', flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.05)\n"
        "import apple\n"  # only now: from the environment's own folder
        "print(apple.version, flush=True)\n"
    )
    go = code / "go"
    run = ["run", "--detach", "--name", "long", "-n", 2, "-e", requirements]
    assert allranks(*run, "--", "python", "train.py", go).returncode == 0
    until(lambda: allranks("job", "logs", "long").stdout.count("started") == 2)
    age(home / "environments")
    age(home / "blobs")
    clutter(home)
    told = cleared(allranks, "--older-than", "0h", "--jobs")
    assert {each["kind"] for each in told["items"]} == {
        "environments",
        "unfinished environments",
        "logs of environments",
        "code",
        "checkouts",
        "working folders",
    }
    assert not (home / "environments" / A).exists()
    assert len(environments(home)) == 1
    go.touch()
    done = allranks("job", "stream", "long")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1.0") == 2

    # Its environment goes once it has ended; its code is kept with its record.
    age(home / "blobs")
    told = cleared(allranks, "--older-than", "0h")
    assert [each["kind"] for each in told["items"]] == ["environments"]
    assert environments(home) == []
    again = allranks("job", "restart", "long").stdout.strip()
    done = allranks("job", "stream", again)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1.0") == 2


def test_deleted_code_is_sent_again(allranks, home, code):
    (code / "a.py").write_text("print('here')\n")
    assert allranks("run", "--name", "first", "--", "python", "a.py").stdout == "here\n"
    age(home / "blobs")
    with_database(home, "UPDATE jobs SET ended_at = 1000000000")
    told = cleared(allranks, "--jobs")
    assert {each["kind"] for each in told["items"]} == {"jobs", "code"}
    assert not list(home.glob("blobs/*/*"))
    gone = allranks("job", "show", "first")
    assert gone.returncode == 2
    assert "the job 'first' was deleted" in gone.stderr
    assert allranks("run", "--name", "second", "--", "python", "a.py").stdout == "here\n"
    assert answer(allranks, "job", "list")[0]["name"] == "second"


def with_database(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "allranks.db")) as database, database:
        database.execute(statement)


def test_a_dry_run_adds_up_to_what_du_says(allranks, home, code):
    (code / "a.py").write_text("open('outputs/f', 'wb').write(b'x' * 3_000_000)")
    assert allranks("run", "--", "python", "a.py").returncode == 0
    clutter(home)
    for name, size in (("data/mine", 5_000_000), ("blobs/00/tmpx1", 4_000_000)):
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    os.utime(home / "blobs/00/tmpx1", (OLD, OLD))
    (home / "data/again").hardlink_to(home / "data/mine")
    (home / "strange file").write_bytes(b"x" * 1_000_000)
    told = cleared(allranks, "--dry-run")
    counted = subprocess.run(["du", "-s", "-B1", home], capture_output=True, text=True, check=True)
    # The server writes its database and its log meanwhile.
    assert abs(told["home_bytes"] - int(counted.stdout.split()[0])) < 200_000
    assert told["bytes"] + sum(e["bytes"] for e in told["kept"]) == told["home_bytes"]
    kinds = {each["kind"]: each["bytes"] for each in told["kept"]}
    assert kinds["datastore"] // 1_000_000 == 5
    assert kinds["jobs"] // 1_000_000 == 3
    assert kinds["other"] // 1_000_000 == 5  # with the reserve
    assert {"database", "code"} <= {*kinds}
    assert "tmpx1" in {each["name"] for each in told["items"]}


def test_a_dry_run_lists_everything_and_changes_nothing(allranks, home):
    allranks("run", "--name", "old", "--", "true")
    until(lambda: not list((home / "nodes").iterdir()))
    with_database(home, "UPDATE jobs SET ended_at = 1000000000")
    clutter(home)
    before = tree(home)
    done = allranks("gc", "--dry-run", "--jobs")
    assert "total of the home" in done.stdout
    assert done.returncode == 0
    assert tree(home) == before
    assert f"{home}/jobs/old" in done.stdout
    assert "not used for 40 days" in done.stdout
    assert "nothing deleted" in done.stderr
    told = cleared(allranks, "--dry-run", "--jobs")
    assert tree(home) == before
    for each in told["items"]:
        assert each["path"] in done.stdout
        assert each["why"] in done.stdout
    did = cleared(allranks, "--jobs")
    assert [each["path"] for each in did["items"]] == [each["path"] for each in told["items"]]
    assert not any(Path(each["path"]).exists() for each in did["items"])
    last = allranks("gc", "--yes", "--jobs")
    assert (last.returncode, last.stdout) == (0, "")
    assert "nothing to delete" in last.stderr


def test_a_killed_server_finishes_the_deletion_the_next_time(allranks, home):
    allranks("job", "list")
    clutter(home)
    folder = home / "environments" / A
    for number in range(20_000):
        (folder / f"{number}.py").touch()
    age(folder)
    server = psutil.Process(json.loads((home / "server.json").read_text())["pid"])
    ended: list[int] = []
    asks = threading.Thread(target=lambda: ended.append(allranks("gc", "--yes").returncode))
    asks.start()
    until(lambda: list(home.glob("environments/.going-*")))
    server.kill()
    asks.join()
    assert ended == [2], "the command says that it closed the connection"
    assert not folder.exists()
    assert list(home.glob("environments/.going-*"))
    told = cleared(allranks)
    assert told["items"][0]["kind"] == "half removed"
    assert not list(home.glob("environments/*"))
    assert not list(home.glob("environments/.*"))
    assert cleared(allranks)["items"] == []


def test_what_cannot_be_deleted_is_reported_and_the_rest_is_deleted(allranks, home):
    allranks("job", "list")
    clutter(home)
    (home / "code").rename(home / "elsewhere")
    (home / "code").symlink_to("code")
    done = allranks("gc", "--yes")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["WHAT", "COUNT", "SIZE"]
    assert lines[1][:2] == ["environments", "1"]
    assert lines[-1][0] == "total"
    assert str(home) not in done.stdout
    assert f"cannot delete {home}/code: too many levels" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "environments" / A).exists()
    assert not (home / "nodes" / "nobody.1").exists()
    told = cleared(allranks, code=1)
    assert [each["path"] for each in told["failed"]] == [str(home / "code")]


def test_a_repository_that_is_used_again_stays(allranks, home, code, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("print('fetched')\n")
    commit_all(source)
    run = ["run", "-C", f"git+file://{source}", "--", "python", "a.py"]
    assert allranks(*run).stdout == "fetched\n"
    age(home / "code")
    assert allranks(*run).stdout == "fetched\n"
    assert cleared(allranks)["items"] == []
    age(home / "code")
    (gone,) = cleared(allranks)["items"]
    assert gone["kind"] == "checkouts"
    assert list((home / "code").iterdir()) == []
    assert allranks(*run).stdout == "fetched\n"


@pytest.mark.parametrize("given", ["-1", "abc", "", "3x", "nan", "inf", "1e9", "d", "-2h"])
def test_invalid_durations(given):
    with pytest.raises(UsageError, match="is not a duration") as raised:
        _seconds(given)
    assert raised.value.hint == "give a number of days, or 90s, 30m, 1.5h, 7d or 2w"


def test_valid_durations():
    durations = [_seconds(text) for text in ("0", "0.5", "12h", "30d", "4W")]
    assert durations == [0, 43200, 43200, 30 * 86400, 28 * 86400]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"older_than_seconds": -1},
        {"older_than_seconds": "30d"},
        {"older_than_seconds": True},
        {"older_than_seconds": 10**400},
        {"older_than_seconds": 1, "dry_run": "yes"},
        {"older_than_seconds": 1, "dry-run": True},
    ],
)
def test_bad_requests(shared, shared_home, monkeypatch, body):
    shared("server", "start")
    url = json.loads((shared_home / "server.json").read_text())["url"]
    token = (shared_home / "token").read_text().strip()
    with Client(url, token) as client, pytest.raises(UsageError) as raised:
        client.json("POST", "/api/v1/gc", body)
    assert raised.value.hint
