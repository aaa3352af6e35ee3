"""Jobs over time: names, tags, archive, comparison and deletion, over HTTP."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks import clock
from tests.server.auth.test_people import made
from tests.server.serving import JOB, Served, held_to, served
from tests.support import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("history") / "h'o") as found:
        yield found


def submit(server: Served, name: str, headers: Any = None, **spec: Any) -> None:
    body = JOB | {"spec": JOB["spec"] | {"name": name, **spec}}  # type: ignore[operator]
    told = server.people.post("/api/v1/jobs", json=body, headers=headers)
    assert told.status_code == 201, told.text


def ended(server: Served, name: str, headers: Any = None, **spec: Any) -> None:
    submit(server, name, headers, **spec)
    server.people.post(f"/api/v1/jobs/{name}/cancel?force=true")
    until(lambda: server.people.get(f"/api/v1/jobs/{name}").json()["ended_at"])


def names(server: Served, query: str = "") -> list[str]:
    told = server.people.get(f"/api/v1/jobs?{query}")
    assert told.status_code == 200, told.text
    return [each["name"] for each in told.json()]


def resolve(server: Served, text: str, headers: Any = None) -> Any:
    told = server.people.get("/api/v1/resolve", params={"job": text}, headers=headers)
    held_to(told)
    return told.json()


def test_names(server: Served) -> None:
    for name in ("calm_otter_1", "calm_otter_12", "wise_heron_7"):
        submit(server, name)
    assert resolve(server, "wise")["name"] == "wise_heron_7"
    assert resolve(server, "calm_otter_1")["name"] == "calm_otter_1", "an exact name wins"
    for last in ("-", "@last"):
        assert resolve(server, last)["name"] == "wise_heron_7"
    several = resolve(server, "calm")
    assert several["error"] == "conflict"
    assert "calm_otter_12, calm_otter_1" in several["hint"]
    assert "did you mean `wise_heron_7`?" in resolve(server, "wise_herno_7")["hint"]
    assert "wise_heron_7" in resolve(server, "heron")["hint"]
    for hostile in ("", "%", "_alm", "Wise", "../x", "wise'--", "\u202e", "x" * 5000):
        assert resolve(server, hostile)["error"] == "not_found", hostile


def test_last_is_the_newest_of_who_asks(server: Served) -> None:
    zoe, yan = made(server, "zoe", "member"), made(server, "yan", "member")
    submit(server, "zoes", zoe)
    submit(server, "owners_newest")
    assert resolve(server, "-", zoe)["name"] == "zoes"
    assert resolve(server, "-")["name"] == "owners_newest"
    assert resolve(server, "-", yan)["error"] == "not_found"
    server.people.patch("/api/v1/jobs/zoes", json={"archived": True})
    assert resolve(server, "-", zoe)["error"] == "not_found"
    assert resolve(server, "zoe", zoe)["name"] == "zoes", "a name finds include archived jobs"


def test_what_ended_since_the_last_visit(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visit is a time per person, and looks within half an hour are one."""
    vera, other = made(server, "vera", "member"), made(server, "vito", "member")

    def visit(later: float) -> Any:
        monkeypatch.setattr(clock, "now", lambda: time.time() + later)
        before = server.people.post("/api/v1/visit", headers=vera).json()["before"]
        monkeypatch.undo()
        return before

    def listed(query: str, headers: Any) -> list[str]:
        rows = server.people.get(f"/api/v1/jobs?{query}", headers=headers).json()
        return [row["name"] for row in rows]

    ended(server, "veras", vera)
    ended(server, "vitos", other)
    assert listed("mine=true", vera) == ["veras"]
    assert listed("mine=true&since_visit=true", vera) == ["veras"], "the first visit"
    assert visit(0) is None
    assert visit(600) is None, "the same visit"
    assert visit(3600) is not None
    assert listed("mine=true&since_visit=true", vera) == []
    assert listed("mine=true&since_visit=true&status=Canceled", other) == ["vitos"]


def test_tags_and_archive(server: Served) -> None:
    submit(server, "tagged", display_name="A name", tags={"a": "1", "b": "2"})
    change = {"tags": {"a": "3", "k'\"%": "ü"}, "remove_tags": ["b"]}
    told = server.people.patch("/api/v1/jobs/tagged", json=change).json()
    assert told["tags"] == {"a": "3", "k'\"%": "ü"}
    assert names(server, "tag=a%3D3") == ["tagged"]
    assert names(server, "tag=a%3D1") == []
    shown = server.people.get("/api/v1/jobs/tagged").json()
    assert (shown["display_name"], shown["archived_at"]) == ("A name", None)
    server.people.patch("/api/v1/jobs/tagged", json={"archived": True})
    assert "tagged" not in names(server)
    assert names(server, "archived=only&name=tagged") == ["tagged"]
    assert "tagged" in names(server, "archived=all")
    assert server.people.patch("/api/v1/jobs/tagged", json={"archived": False}).status_code == 200
    assert "tagged" in names(server)
    for wrong in ({"tags": {"": "x"}}, {"tags": {"a": "\0"}}, {"nosuch": 1}, {"tags": {"a": 1}}):
        told = server.people.patch("/api/v1/jobs/tagged", json=wrong)
        held_to(told)
        assert told.status_code in (400, 422), wrong
    surrogate = b'{"tags": {"a": "x\\ud800y"}}'
    headers = {"content-type": "application/json"}
    told = server.people.patch("/api/v1/jobs/tagged", content=surrogate, headers=headers)
    assert told.status_code == 400
    (row,) = server.people.get("/api/v1/jobs?tag=a").json()
    assert row["tags"] == change["tags"], "what was refused has changed nothing"


@pytest.mark.parametrize(
    "query",
    [
        "sort=",
        "sort=-",
        "metric=loss",
        "tag=%3Dx",
        "archived=x",
        "status=Foo",
        "since=nan",
        "limit=-1",
    ],
)
def test_questions_that_cannot_be_read(server: Served, query: str) -> None:
    told = server.people.get(f"/api/v1/jobs?{query}")
    held_to(told)
    assert told.status_code == 400


def test_jobs_of_several_statuses_in_one_list(server: Served) -> None:
    ended(server, "over")
    assert "over" in names(server, "status=Canceled&status=Failed")
    assert "over" in names(server, "status=Failed&status=Canceled")
    assert names(server, "status=Failed&status=Completed") == []


def test_a_list_tells_what_its_columns_show(server: Served) -> None:
    submit(server, "shown", inputs={"lr": 0.1}, tags={"team": "vision"})
    (row,) = server.people.get("/api/v1/jobs?name=shown&metrics=true").json()
    assert row["inputs"] == {"lr": 0.1}
    assert row["tags"] == {"team": "vision"}
    assert row["metrics"] == {}
    assert {"duration", "archived_at", "display_name"} <= row.keys()


def test_deleting(server: Served) -> None:
    submit(server, "lives")
    told = server.people.delete("/api/v1/jobs/lives")
    held_to(told)
    assert (told.status_code, "has not ended" in told.text) == (409, True)
    ended(server, "gone")
    left = server.home.jobs / "gone" / "artifacts" / "outputs" / "model.pt"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 10_000)
    told = server.people.delete("/api/v1/jobs/gone").json()
    assert told["bytes"] >= 10_000
    assert not left.exists()
    assert not list(server.home.jobs.glob(".going-*"))
    assert server.people.get("/api/v1/jobs/gone").status_code == 404
    assert server.people.delete("/api/v1/jobs/gone").status_code == 404
    assert "was deleted" in resolve(server, "gone")["message"]
    again = server.people.post("/api/v1/jobs", json=JOB | {"spec": JOB["spec"] | {"name": "gone"}})  # type: ignore[operator]
    held_to(again)
    assert "was deleted" in again.json()["message"]
    ended(server, "base")
    assert server.people.post("/api/v1/jobs/base/restart").json()["name"] == "base-r2"
    server.people.post("/api/v1/jobs/base-r2/cancel?force=true")
    until(lambda: server.people.get("/api/v1/jobs/base-r2").json()["ended_at"])
    assert server.people.delete("/api/v1/jobs/base-r2").status_code == 200
    assert server.people.post("/api/v1/jobs/base/restart").json()["name"] == "base-r3"


def test_what_others_need_is_not_deleted(server: Served) -> None:
    ended(server, "source")
    place = str(server.home.jobs / "source" / "named-outputs" / "m")
    Path(place).mkdir(parents=True)
    ended(server, "reader", inputs={"m": {"type": "uri_folder", "path": place}})
    told = server.people.delete("/api/v1/jobs/source")
    held_to(told)
    assert (told.status_code, "reader" in told.json()["message"]) == (409, True)
    assert server.people.delete("/api/v1/jobs/reader").status_code == 200
    asset = {"name": "d", "version": "1", "type": "uri_folder", "path": place}
    assert server.people.post("/api/v1/data", json=asset).status_code == 201
    told = server.people.delete("/api/v1/jobs/source")
    assert "allranks data delete d:1" in told.json()["hint"]
    assert server.people.delete("/api/v1/data/d:1").status_code < 300
    assert server.people.delete("/api/v1/jobs/source").status_code == 200


def test_members_change_and_delete_their_own_jobs_only(server: Served) -> None:
    una, vic = made(server, "una", "member"), made(server, "vic", "member")
    ended(server, "unas", una)
    for call in (
        server.people.patch("/api/v1/jobs/unas", json={"archived": True}, headers=vic),
        server.people.delete("/api/v1/jobs/unas", headers=vic),
    ):
        assert call.status_code == 403
        assert "submitted by una" in call.text
    tagged = server.people.patch("/api/v1/jobs/unas", json={"tags": {"a": "b"}}, headers=una)
    assert tagged.status_code == 200
    assert server.people.delete("/api/v1/jobs/unas", headers=una).status_code == 200


def test_comparing(server: Served) -> None:
    env = {"RATE": "1", "MY_TOKEN": "s3cr3t", "SAME": "x"}
    submit(server, "c1", inputs={"lr": 0.1, "data": {"path": "/etc"}}, environment_variables=env)
    more = env | {"RATE": "2", "MY_TOKEN": "two"}
    submit(server, "c2", inputs={"lr": 0.2, "data": {"path": "/usr"}}, environment_variables=more)
    submit(server, "c3", command="false", inputs={"lr": 0.1, "data": {"path": "/etc"}})
    told = server.people.get("/api/v1/compare?job=c1&job=c2&job=c3").json()
    assert [each["name"] for each in told["jobs"]] == ["c1", "c2", "c3"]
    found = {(each["section"], each["name"]): each["values"] for each in told["differences"]}
    assert found["parameters", "lr"] == ["0.1", "0.2", "0.1"]
    assert found["parameters", "command"] == ["true", "true", "false"]
    assert found["data", "data"] == ["/etc", "/usr", "/etc"]
    assert found["environment", "variable RATE"] == ["1", "2", None]
    hidden = found["environment", "variable MY_TOKEN"]
    assert hidden == ["hidden value 1", "hidden value 2", None]
    assert found["environment", "variable SAME"] == ["x", "x", None]
    assert ("parameters", "nodes") not in found, "what is the same is not told"
    assert "s3cr3t" not in str(told["differences"])
    assert told["configurations"] == [0, 1, 2]
    wrong = server.people.get("/api/v1/compare?job=c1")
    held_to(wrong)
    assert wrong.status_code == 400


def test_runs_of_one_configuration_differ_in_seeds_only(server: Served) -> None:
    for name, seed, rate in (("s1", 1, 0.1), ("s2", 2, 0.1), ("s3", 2, 0.2)):
        variables = {"RUN_SEED": str(seed)}
        command = f"python train.py --seed {seed} --lr {rate}"
        submit(server, name, command=command, environment_variables=variables)
    told = server.people.get("/api/v1/compare?job=s1&job=s2&job=s3").json()
    assert told["configurations"] == [0, 0, 1]
    found = {each["name"]: each["values"] for each in told["differences"]}
    assert found["lr"] == ["0.1", "0.1", "0.2"]
    assert "command" not in found, "its flags are told one by one"
    shown = server.people.get("/api/v1/jobs/s3").json()
    assert shown["parameters"] == {"seed": "2", "lr": "0.2"}


def test_a_job_that_is_deleted_while_it_is_cleaned_up(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Right after its end its server still tidies up; that does not go on for ever."""
    for number in range(3):
        ended(server, f"quick{number}")
        assert server.people.delete(f"/api/v1/jobs/quick{number}").status_code == 200
    ended(server, "after")
    assert "clean-up failed" not in caplog.text


def test_changes(server: Served) -> None:
    """Asked with the last number, the answer waits for the next one."""

    def number(**query: Any) -> int:
        told = server.people.get("/api/v1/changes", params=query)
        assert told.status_code == 200, told.text
        return int(told.json()["number"])

    submit(server, "changing")
    server.people.post("/api/v1/jobs/changing/cancel?force=true")
    until(lambda: server.people.get("/api/v1/jobs/changing").json()["ended_at"])
    until(lambda: number(job="changing", after=(now := number(job="changing")), timeout=0.3) == now)
    now, of_all = number(job="changing"), number()
    submit(server, "another")
    assert number(after=of_all, timeout=20) > of_all
    assert number(job="changing", after=now, timeout=0) == now
    # A number from before a restart of the server is not the present one.
    assert number(job="changing", after=now + 1000, timeout=20) == now
    assert server.people.get("/api/v1/changes?job=nosuch").status_code == 404
    assert server.people.get("/api/v1/changes?timeout=-1").status_code == 400
