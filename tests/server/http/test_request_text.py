"""Text that cannot be stored or shown is refused at the door, and a row that cannot be read hides
no other."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import JOB, Served, held_to, served

BAD = {
    "surrogate": "x\ud800y",
    "low": "\udc80",
    "nul": "a\0b",
    "long": "x" * (10 << 20),
    "nan": float("nan"),
    "infinite": float("inf"),
    "digits": 10**500,
    "deep": json.loads("[" * 200 + "]" * 200),
}
LISTS = ("jobs", "top", "data", "models", "environments", "datastores", "computes", "states")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("text") / "h") as found:
        found.submit("j")
        yield found


def lists(server: Served) -> dict[str, Any]:
    """What a second user sees in each list."""
    made = server.people.post("/api/v1/tokens", json={"name": "second", "role": "reader"})
    shown = server.as_(made.json()["token"])
    try:
        answers = {each: server.people.get(f"/api/v1/{each}", headers=shown) for each in LISTS}
    finally:
        server.people.delete("/api/v1/tokens/second")
    assert {each: told.status_code for each, told in answers.items()} == dict.fromkeys(LISTS, 200)
    return {each: told.json() for each, told in answers.items()}


def names(found: dict[str, Any]) -> dict[str, set[str]]:
    return {
        each: {row["name"] for row in rows}
        for each, rows in found.items()
        if isinstance(rows, list)
    }


def posted(server: Served, path: str, body: Any) -> httpx.Response:
    """As httpx would not: with what is no text."""
    content, kind = json.dumps(body).encode(), {"content-type": "application/json"}
    return server.people.post(f"/api/v1/{path}", content=content, headers=kind)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("jobs", lambda bad: JOB | {"spec": JOB["spec"] | {"name": "n", "display_name": bad}}),
        ("jobs", lambda bad: JOB | {"spec": JOB["spec"] | {"name": "n", "tags": {"a": bad}}}),
        ("jobs", lambda bad: JOB | {"spec": JOB["spec"] | {"name": "n", "inputs": {"x": bad}}}),
        ("jobs", lambda bad: JOB | {"spec": JOB["spec"] | {"name": "n"}, "diff": bad}),
        ("data", lambda bad: {"name": "d", "path": "/x", "description": bad}),
        ("models", lambda bad: {"name": "m", "path": "x", "job": "j", "tags": {"a": bad}}),
        ("environments", lambda bad: {"name": "e", "pip": [], "description": bad}),
        ("jobs/j/preempt", lambda bad: {"by": bad}),
    ],
)
@pytest.mark.medium
def test_a_refused_request_leaves_nothing(server: Served, path: str, body: Any, bad: Any) -> None:
    before = lists(server)
    folders = sorted(server.home.jobs.iterdir()) if server.home.jobs.exists() else []
    told = posted(server, path, body(bad))
    held_to(told)
    assert told.status_code == 400, told.text
    assert names(lists(server)) == names(before)
    assert (sorted(server.home.jobs.iterdir()) if server.home.jobs.exists() else []) == folders


def test_a_key_that_is_no_text_is_named(server: Served) -> None:
    body = JOB | {"spec": JOB["spec"] | {"tags": {"\ud800": "x"}}}
    told = posted(server, "jobs", body)
    assert (told.status_code, told.json()["where"]) == (400, r"spec.tags.\ud800")
    assert "U+D800" in told.json()["message"]


@pytest.mark.parametrize("text", ["😀", "‮", "\U0010ffff", "\x1b[31m", "é\u0301", "\x85", "\t\n"])
def test_all_other_text_is_stored_as_it_is(server: Served, text: str) -> None:
    name = f"t{ord(text[0])}"
    body = JOB | {"spec": JOB["spec"] | {"name": name, "display_name": text}}
    assert server.people.post("/api/v1/jobs", json=body).status_code == 201
    assert server.people.get(f"/api/v1/jobs/{name}").json()["display_name"] == text


@pytest.mark.parametrize("path", ["jobs/a%00b", "jobs/%ED%A0%80", "jobs?status=%00", "data/%ff"])
def test_addresses_that_are_no_text(server: Served, path: str) -> None:
    told = server.people.get(f"/api/v1/{path}")
    held_to(told)
    assert told.status_code == 400
    shown = server.as_(server.auth.agent_token("j", 1))
    told = server.people.get("/agent/v1/0/orders?attempt=1&known=%00", headers=shown)
    assert told.status_code == 400


def test_files_may_be_called_anything(server: Served) -> None:
    folder = server.home.jobs / "j"
    folder.mkdir(parents=True, exist_ok=True)
    Path(f"{folder}/\udcff.txt").write_text("x")
    assert server.people.get("/api/v1/jobs/j/files/%FF.txt").text == "x"
    told = posted(server, "jobs/j/bundle", [{"path": "\udcff.txt", "size": 1}])
    assert told.content.endswith(b"\nx")
    assert lists(server)


# ---------------------------------------------------------------- rows that cannot be read


def stored(server: Served, name: str, **columns: Any) -> None:
    """Put that into the row of a job."""
    with closing(sqlite3.connect(server.home.database)) as database, database:
        for column, value in columns.items():
            database.execute(f"UPDATE jobs SET {column} = ? WHERE name = ?", (value, name))


@pytest.mark.parametrize("columns", [{"plan": "{}"}, {"spec": '{"display'}])
@pytest.mark.medium
def test_a_damaged_job_hides_no_other_and_can_be_deleted(
    tmp_path: Path, columns: dict[str, str]
) -> None:
    with served(tmp_path / "h") as first:
        first.submit("good")
        first.submit("bad")
    stored(first, "bad", **columns)
    with served(tmp_path / "h") as second:
        found = {row["name"]: row for row in lists(second)["jobs"]}
        assert found.keys() == {"good", "bad"}
        assert "damaged" not in found["good"]
        held_to(second.people.get("/api/v1/jobs/bad"))
        assert found["bad"]["status"] == "Damaged"
        assert found["bad"]["damaged"]
        assert second.people.get("/api/v1/jobs/good/events").status_code == 200
        second.submit("next")  # and the home goes on
        cleared = second.people.post("/api/v1/gc", json={"older_than_seconds": 0, "dry_run": True})
        assert cleared.status_code == 200, cleared.text
        assert second.people.delete("/api/v1/jobs/bad").status_code == 200
        assert second.people.get("/api/v1/jobs/bad").status_code == 404
        assert "bad" not in {row["name"] for row in lists(second)["jobs"]}
        second.submit("bad-2")


# ---------------------------------------------------------------- deleting one job


def test_a_live_job_is_not_deleted_and_one_that_others_need_neither(server: Served) -> None:
    server.submit("alive")
    told = server.people.delete("/api/v1/jobs/alive")
    held_to(told)
    assert told.status_code == 409
    assert "job cancel alive" in told.json()["hint"]
    assert server.people.delete("/api/v1/jobs/none-such").status_code == 404


def test_only_who_submitted_a_job_deletes_it(server: Served) -> None:
    server.submit("mine")
    server.people.post("/api/v1/jobs/mine/cancel")
    server.people.get("/api/v1/jobs/mine/wait?timeout=20")
    made = server.people.post("/api/v1/tokens", json={"name": "member", "role": "member"})
    shown = server.as_(made.json()["token"])
    told = server.people.delete("/api/v1/jobs/mine", headers=shown)
    assert told.status_code == 403
    folder = server.home.jobs / "mine"
    folder.mkdir(exist_ok=True)
    (folder / "x").write_text("x")
    assert server.people.delete("/api/v1/jobs/mine").status_code == 200
    assert not folder.exists()
