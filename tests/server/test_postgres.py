"""A home whose record is in PostgreSQL, which is killed; and a database that two servers want."""

import json
from pathlib import Path

import pytest

from tests import postgres
from tests.support import leave_nothing, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postgres.programs() is None, reason="apt-get install postgresql"),
]

# More than a database's start may take on a busy machine.
_LONG = 180


@pytest.mark.timeout(_LONG + 120)
@pytest.mark.end_to_end
def test_a_database_that_is_killed_while_a_job_runs(allranks, home, tmp_path):
    with postgres.cluster() as cluster:
        script = f"until [ -e '{tmp_path}/end' ]; do echo $((i++)); sleep 0.05; done; echo end"
        named = {"ALLRANKS_DATABASE": cluster.database()}
        words = ("run", "--detach", "-n", 2, "-m", "n=^([0-9]+)$", "--", "bash", "-c", script)
        begun = allranks(*words, env=named)
        assert begun.returncode == 0, begun.stderr
        name = begun.stdout.strip()

        def lines() -> list[str]:
            return allranks("job", "logs", name, "--rank", 0).stdout.splitlines()

        until(lambda: len(lines()) > 5)
        cluster.kill()
        said = allranks("job", "create", "-f", "-", input="command: 'true'\n")
        assert said.returncode == 2
        assert "the database cannot be used" in said.stderr
        assert "hint: start it, or see its log" in said.stderr
        assert "pass-word" not in said.stderr
        assert allranks("job", "show", name).returncode in (0, 2)
        cluster.start()
        known = len(lines())
        until(lambda: len(lines()) > known + 5)
        (tmp_path / "end").touch()
        done = allranks("job", "wait", name)
        assert done.returncode == 0, done.stderr
        told = json.loads(allranks("job", "show", name, "--json").stdout)
        assert (told["status"], told["attempts"]) == ("Completed", 1)
        for rank in range(2):
            printed = allranks("job", "logs", name, "--rank", rank).stdout.splitlines()
            assert printed == [*map(str, range(len(printed) - 1)), "end"]
        points = json.loads(allranks("job", "metrics", name, "--json").stdout)
        assert len(points["n"]) > 10
        log = (home / "server.log").read_text()
        assert "Traceback" not in log
        assert "pass-word" not in log
        assert not (home / "allranks.db").exists()
        leave_nothing(home)


@pytest.mark.timeout(_LONG + 120)
def test_a_database_has_one_server_and_its_backup_goes_anywhere(
    allranks, home, postgres, tmp_path: Path
):
    url = postgres.database()
    assert (
        allranks("run", "--name", "one", "--", "true", env={"ALLRANKS_DATABASE": url}).returncode
        == 0
    )
    other = {"ALLRANKS_HOME": str(tmp_path / "other"), "ALLRANKS_DATABASE": url}
    refused = allranks("server", "start", env=other)
    assert refused.returncode == 2
    assert "another server uses this database: allranks of " in refused.stderr
    assert "pass-word" not in refused.stderr
    wrong = allranks("server", "stop")
    assert wrong.returncode == 0
    moved = allranks("server", "start", env={"ALLRANKS_DATABASE": postgres.database()})
    assert "uses another database than ALLRANKS_DATABASE" in moved.stderr
    assert (home / "database.url").stat().st_mode & 0o777 == 0o600
    done = allranks("server", "backup", tmp_path / "b.tar", "--json")
    assert json.loads(done.stdout)["jobs"] == 1
    # Into a file, and from there into another PostgreSQL.
    first, second = ({"ALLRANKS_HOME": str(tmp_path / name)} for name in ("first", "second"))
    second["ALLRANKS_DATABASE"] = postgres.database()
    try:
        assert allranks("server", "restore", "--yes", tmp_path / "b.tar", env=first).returncode == 0
        again = allranks("server", "backup", tmp_path / "c.tar", env=first)
        assert again.returncode == 0, again.stderr
        done = allranks("server", "restore", "--yes", tmp_path / "c.tar", env=second)
        assert done.returncode == 0, done.stderr
        del second["ALLRANKS_DATABASE"]  # it is the home's own now
        refused = allranks("server", "restore", "--yes", tmp_path / "c.tar", env=second)
        assert "this home has 1 job" in refused.stderr
        assert allranks("server", "start", "--port", 0, env=second).returncode == 2
        (tmp_path / "second" / "server.json").unlink()  # its port is the first one's
        assert "Completed" in allranks("job", "show", "one", env=second).stdout
        assert allranks("run", "--", "true", env=second).returncode == 0
        aside = allranks("server", "restore", "--yes", tmp_path / "c.tar", "--force", env=second)
        assert "a server of this home is running" in aside.stderr
        allranks("server", "stop", env=second)
        done = allranks(
            "server", "restore", "--yes", tmp_path / "c.tar", "--force", "--json", env=second
        )
        assert (Path(json.loads(done.stdout)["aside"]) / "allranks.db").exists()
        assert len(json.loads(allranks("job", "list", "--json", env=second).stdout)) == 1
    finally:
        leave_nothing(tmp_path / "second")


@pytest.mark.parametrize(
    ("url", "said", "hint"),
    [
        ("mysql://x/y", "not the URL of a PostgreSQL database", "postgresql://USER"),
        ("postgresql://u:hush@127.0.0.1:1/d", "refused", "start it"),
        ("postgresql://u:hush@{socket}/nosuch", '"nosuch" does not exist', "createdb"),
    ],
)
def test_what_is_said_of_a_database_that_cannot_be_had(allranks, home, postgres, url, said, hint):
    url = url.replace("u:hush@{socket}/nosuch", f"tester:hush@/nosuch?host={postgres.folder}")
    done = allranks("server", "start", env={"ALLRANKS_DATABASE": url})
    assert done.returncode == 2
    assert said in done.stderr
    assert hint in done.stderr
    assert "hush" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "allranks.db").exists()
