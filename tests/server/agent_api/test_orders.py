"""Orders of agents: what the first answer has, and which news a waiting agent is told."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Served, served
from tests.support import until

# A third of it is the longest that a request for orders waits.
LEASE = 0.9


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "h", lease=LEASE) as found:
        found.submit("a")
        shown = found.as_(found.auth.agent_token("a", 1))
        until(lambda: found.people.get("/api/v1/jobs/a").json()["status"] != "NotStarted")
        found.people.headers.update(shown)
        yield found


def asked(server: Served, known: str) -> tuple[dict[str, Any], float]:
    began = time.monotonic()
    path = "/agent/v1/0/orders"
    told = server.people.get(path, params={"attempt": 1, "known": known}).json()
    return told, time.monotonic() - began


@pytest.mark.medium
def test_the_answer_to_hello_has_the_first_order(server: Served) -> None:
    told = server.people.post("/agent/v1/0/hello").json()["order"]
    assert told == asked(server, "")[0]
    assert told["do"] == "wait"


@pytest.mark.medium
def test_to_wait_is_no_news_to_an_agent_with_an_order(server: Served) -> None:
    name = server.people.post("/agent/v1/0/hello").json()["order"]["server"]
    for known in (f"go.1...{name}", f"stop.1.DONE..{name}", f"wait.1...{name}"):
        told, took = asked(server, known)
        assert told["do"] == "wait"
        assert took > LEASE / 4, known
    for known in ("", "go.1...another"):  # a new agent, and one that knew another server
        told, took = asked(server, known)
        assert (told["do"], told["server"]) == ("wait", name)
        assert took < LEASE / 4, known


@pytest.mark.medium
@pytest.mark.parametrize("path", ["jobs/b", "jobs/b/resources", "top"])
def test_an_agent_hears_that_somebody_looks_at_what_its_job_uses(server: Served, path: str) -> None:
    person, agent = server.as_(server.token()), server.as_(server.auth.agent_token("b", 1))
    server.people.headers.update(person)
    server.submit("b")

    def started() -> bool:
        (found,) = [
            each for each in server.people.get("/api/v1/jobs").json() if each["name"] == "b"
        ]
        return bool(found["status"] != "NotStarted")

    until(started)
    for each, watched in (("jobs/b/metrics", False), (path, True)):
        server.people.headers.update(person)
        assert server.people.get(f"/api/v1/{each}").status_code == 200
        server.people.headers.update(agent)
        assert asked(server, "")[0].get("watched", False) is watched
