"""State folders on the server, one job after the other: what each finds, and keeps."""

import hashlib
import json
import os
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from allranks.core.data.state_manifest import Entry
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import NotFound
from allranks.events import Event, Kind
from allranks.server.assets.state_folders import States
from allranks.settings import Home, make
from allranks.statuses import TERMINAL
from allranks.store.database import open_database
from allranks.store.files.state_folders import NAMED, OF_JOBS, Put, State
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from tests.server.serving import JOB, Served, served
from tests.support import until


class House:
    """A home with a record and states, and no server."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        make(self.home)
        self.database = open_database(self.home.database)
        self.records = Records(self.database)
        self.states = States(self.home, self.records)

    def job(self, name: str, state: str = "") -> JobRow:
        gang = Gang(f"{name}.1", 1, ("x",))
        return self.records.create(
            {}, Plan(gang, Task(name, "e", "true", state=state), Rules(1), "f")
        )

    def end(self, job: JobRow) -> None:
        finished = {"status": "Completed", "exit_code": 0, "error": None}
        at = job.created_at
        ended = self.records.apply(job, [Event(Kind.FINISHED, at, data=finished)], ended_at=at)
        assert ended is not None
        assert ended.record.status in TERMINAL

    def say(self, job: JobRow, puts: dict[str, str], **more: Any) -> dict[str, Any]:
        """The word of its only node, with what is new in its folder."""
        state = self.states.of(job)
        told = [put(state, path, text) for path, text in puts.items()]
        word = {"attempt": 1, "after": 0, "puts": told, "same": False, "over": False, **more}
        return self.states.sync(job, state, 0, word)


def put(state: State, path: str, text: str) -> dict[str, Any]:
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    if state.incoming.size(digest) is not None:
        state.receive(digest, 0, len(data), data)
    was = state.entries().get(path)
    entry = ["file", digest, len(data), 1, 0o600, "", 0]
    return {"path": path, "base": was.seq if was else 0, "entry": entry}


def read(told: dict[str, Any]) -> Put:
    return Put(told["path"], told["base"], Entry(*told["entry"]))


def texts(state: State) -> list[dict[str, str]]:
    """What its versions hold."""
    return [
        {path: state.content(each.sha256).read_text() for path, each in version.entries.items()}
        for version in state.versions()
    ]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "h")
    yield made
    made.database.dispose()


def test_a_job_that_is_forgotten_late_leaves_the_next_one_alone(house: House) -> None:
    first, second = house.job("a", "s"), house.job("b", "s")
    house.say(first, {"shared/model": "A", "shared/optimizer": "A"})
    house.end(first)
    house.say(second, {"shared/model": "B"})  # half of a checkpoint
    house.states.forget(first)
    whole = {"shared/model": "A", "shared/optimizer": "A"}
    state = house.states.of(second)
    assert texts(state) == [whole]
    house.say(second, {"shared/optimizer": "B"})
    house.say(second, {}, same=True, over=True)
    assert texts(state) == [whole, {"shared/model": "B", "shared/optimizer": "B"}]


def test_a_job_that_waits_finds_what_the_one_before_left_as_its_version(house: House) -> None:
    first, second = house.job("a", "s"), house.job("b", "s")
    house.say(first, {"shared/model": "A"})
    house.end(first)
    house.states.forget(first)
    house.say(second, {})
    assert [each.job for each in house.states.of(second).versions()] == ["a"]


@pytest.mark.medium
def test_of_states_that_no_job_has_few_are_in_memory(house: House) -> None:
    """And those that a job has are never put away under it."""
    held = house.job("live", "held")
    house.say(held, {"shared/n": "x" * 99})
    of_held = house.states.of(held)
    names = [f"j{number}" for number in range(30)]
    for name in names:
        state = State(house.home.states / NAMED / name)
        files = {f"shared/{number:03}": f"{name} {number}" for number in range(100)}
        state.commit([read(put(state, path, text)) for path, text in files.items()])
    tracemalloc.start()
    try:
        found = [house.states.find(name) for name in names]
        assert all(len(state.entries()) == 100 for state in found)
        at_once, _ = tracemalloc.get_traced_memory()
        for name in names:
            assert len(house.states.find(name).entries()) == 100
        one_by_one, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one_by_one < at_once / 2
    assert house.states.of(held) is of_held
    assert [house.states.find(name) for name in names] == found, "one of each, with one lock"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "h") as found:
        yield found


def ended(server: Served, name: str, **more: Any) -> None:
    """Let there be a job that has ended."""
    server.submit(name, **more)
    assert server.people.post(f"/api/v1/jobs/{name}/cancel").status_code == 200
    until(lambda: server.people.get(f"/api/v1/jobs/{name}").json()["status"] == "Canceled")


def fill(server: Served, kind: str, name: str, text: str, job: str = "") -> State:
    """Let there be a file in a state that the server has not read yet."""
    state = State(server.home.states / kind / name)
    state.commit([read(put(state, "shared/n", text))])
    state.keep(job, 1, "an attempt ended")
    return state


def own(server: Served) -> dict[str, int]:
    told = server.people.get("/api/v1/states?own=true").json()
    return {each["name"]: each["files"] for each in told}


@pytest.mark.medium
def test_a_restart_that_is_refused_leaves_no_state_behind(server: Served) -> None:
    code = json.dumps({"chunks": []}).encode()
    digest = hashlib.sha256(code).hexdigest()
    assert server.people.put(f"/api/v1/blobs/{digest}", content=code).is_success
    ended(server, "j", code=digest, in_place=None)
    fill(server, OF_JOBS, "j", "of j")
    (server.home.blobs / digest[:2] / digest).unlink()
    told = server.people.post("/api/v1/jobs/j/restart?resume=true")
    assert "has not been uploaded yet" in told.json()["message"]
    assert own(server) == {"j": 1}


@pytest.mark.medium
def test_a_job_begins_with_no_state_that_one_before_it_left_under_its_name(server: Served) -> None:
    ended(server, "j")
    fill(server, OF_JOBS, "j", "of j")
    fill(server, OF_JOBS, "j-r2", "of nobody")
    fill(server, OF_JOBS, "j-r3", "of nobody")
    assert server.people.post("/api/v1/jobs/j/restart?fresh=true").json()["name"] == "j-r2"
    assert own(server) == {"j": 1, "j-r3": 1}
    told = server.people.post("/api/v1/jobs/j/restart?resume=true")
    assert told.json()["name"] == "j-r3", told.text
    (entry,) = server.people.get("/api/v1/states/j-r3/manifest").json()
    assert entry["sha256"] == hashlib.sha256(b"of j").hexdigest()


@pytest.mark.medium
def test_jobs_that_are_run_again_at_once_each_go_on_from_their_state(server: Served) -> None:
    ended(server, "j")
    fill(server, OF_JOBS, "j", "of j")
    with ThreadPoolExecutor(8) as pool:
        again = "/api/v1/jobs/j/restart?resume=true"
        told = list(pool.map(lambda _: server.people.post(again), range(8)))
    assert {each.status_code for each in told} <= {201, 409}, [each.text for each in told]
    there = {each.json()["name"] for each in told if each.status_code == 201}
    assert own(server) == dict.fromkeys({"j"} | there, 1)


@pytest.mark.medium
def test_own_states_are_listed_beside_named_ones_of_the_same_name(server: Served) -> None:
    fill(server, NAMED, "same", "named")
    fill(server, OF_JOBS, "same", "own")
    for own in (False, True):
        told = server.people.get("/api/v1/states", params={"own": own}).json()
        assert [each["own"] for each in told if each["name"] == "same"] == [own]


def test_what_gc_took_away_is_not_told_of_any_more(server: Served) -> None:
    state = fill(server, OF_JOBS, "j", "of nobody")
    kept = server.people.get("/api/v1/states/j/manifest").json()
    for path in (state.folder, state.folder / "head"):
        os.utime(path, (1, 1))
    asked = {"older_than_seconds": 0}
    (item,) = server.people.post("/api/v1/gc", json=asked).json()["items"]
    assert item["path"] == str(state.folder)
    fill(server, OF_JOBS, "j", "of another")
    told = server.people.get("/api/v1/states/j/manifest").json()
    assert [each["path"] for each in told] == ["shared/n"]
    assert told[0]["sha256"] != kept[0]["sha256"]


def member(server: Served, name: str) -> dict[str, str]:
    told = server.people.post("/api/v1/tokens", json={"name": name, "role": "member"})
    return server.as_(told.json()["token"])


@pytest.mark.medium
def test_members_step_back_what_their_job_had_last_and_delete_what_is_its_own(
    server: Served,
) -> None:
    ann, ben = member(server, "ann"), member(server, "ben")
    spec = JOB["spec"] | {"name": "anns"}  # type: ignore[operator]
    told = server.people.post("/api/v1/jobs", json=JOB | {"spec": spec}, headers=ann)
    assert told.status_code == 201, told.text
    assert server.people.post("/api/v1/jobs/anns/cancel").status_code == 200
    until(lambda: server.people.get("/api/v1/jobs/anns").json()["status"] == "Canceled")
    for kind, name, job in (
        (NAMED, "birds", "anns"),
        (OF_JOBS, "anns", "anns"),
        (NAMED, "fish", "gone"),
        (NAMED, "bees", ""),
    ):
        fill(server, kind, name, name, job)

    def restore(name: str, shown: dict[str, str]) -> int:
        path = f"/api/v1/states/{name}/restore"
        return server.people.post(path, json={"version": 1}, headers=shown).status_code

    assert [restore(name, ben) for name in ("birds", "anns", "fish", "bees")] == [403] * 4
    assert [restore(name, ann) for name in ("birds", "anns", "fish", "bees")] == [200] * 2 + [
        403
    ] * 2
    assert restore("bees", {}) == 200, "the owner's"
    assert restore("none-such", ben) == 404

    def delete(name: str, shown: dict[str, str]) -> int:
        return server.people.delete(f"/api/v1/states/{name}", headers=shown).status_code

    assert [delete(name, ben) for name in ("birds", "anns", "none-such")] == [403, 403, 404]
    assert [delete(name, ann) for name in ("birds", "anns", "anns")] == [403, 200, 404]
    assert delete("birds", {}) == 200, "the owner's"


@pytest.mark.parametrize("name", ["a" * 3000, "é" * 200, "../x", "\ud800", "a/b"])
def test_what_cannot_be_a_name_is_none(house: House, name: str) -> None:
    with pytest.raises(NotFound, match="no state named"):
        house.states.find(name)
