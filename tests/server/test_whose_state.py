"""State folders on the server, one job after the other: what each finds, and keeps."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.events import Event, Kind
from allranks.plan.plan import Gang, Plan, Rules, Task
from allranks.server.states import States
from allranks.settings import Home, make
from allranks.states import TERMINAL
from allranks.store.db import open_database
from allranks.store.records import JobRow, Records
from allranks.store.states import State


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
        ended = self.records.apply(
            job, "me", [Event(Kind.FINISHED, at, data=finished)], ended_at=at
        )
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
    if state.have(digest) is not None:
        state.take(digest, 0, len(data), data)
    was = state.entries().get(path)
    entry = ["file", digest, len(data), 1, 0o600, "", 0]
    return {"path": path, "base": was.seq if was else 0, "entry": entry}


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
