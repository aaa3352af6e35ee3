"""What a job's tokens open: its own job and launch, and nothing else, on every route there is."""

import hashlib
import json
import time
from collections.abc import Iterator

import pytest

from allranks.api.routes import ROUTES
from allranks.server.agent_api import routes as agents
from allranks.server.agent_api import state_routes
from tests.server.serving import JOB, Served, held_to, served

DIGEST = "0" * 64
# Every route of agents, as one of job `a` would ask it.
ASKED = {
    "/agent/v1/{node:int}/hello": ("POST", "/agent/v1/0/hello"),
    "/agent/v1/{node:int}/events": ("POST", "/agent/v1/0/events"),
    "/agent/v1/{node:int}/orders": ("GET", "/agent/v1/0/orders?attempt=1&known=x"),
    "/agent/v1/{node:int}/logs/{attempt:int}/{rank:int}": ("PUT", "/agent/v1/0/logs/1/0?offset=0"),
    "/agent/v1/{node:int}/points/{attempt:int}/{feed}": (
        "PUT",
        "/agent/v1/0/points/1/metrics?offset=0",
    ),
    "/agent/v1/{node:int}/stacks/{number:int}": ("PUT", "/agent/v1/0/stacks/1"),
    "/agent/v1/{node:int}/profiles/{number:int}": ("PUT", "/agent/v1/0/profiles/1"),
    "/agent/v1/{node:int}/pace/{attempt:int}": ("PUT", "/agent/v1/0/pace/1"),
    "/agent/v1/{node:int}/still/{attempt:int}": ("PUT", "/agent/v1/0/still/1"),
    "/agent/v1/{node:int}/code/{digest}": ("GET", f"/agent/v1/0/code/{DIGEST}"),
    "/agent/v1/{node:int}/accounts/{datastore}": ("GET", "/agent/v1/0/accounts/workspaceblobstore"),
    "/agent/v1/{node:int}/state/sync": ("POST", "/agent/v1/0/state/sync"),
    "/agent/v1/{node:int}/state/missing": ("POST", "/agent/v1/0/state/missing"),
    "/agent/v1/{node:int}/state/contents": ("PUT", "/agent/v1/0/state/contents"),
    "/agent/v1/{node:int}/state/contents/{sha256}": (
        "GET",
        f"/agent/v1/0/state/contents/{DIGEST}?offset=0&size=1",
    ),
    "/agent/v1/{node:int}/state/contents/{sha256}/damaged": (
        "POST",
        f"/agent/v1/0/state/contents/{DIGEST}/damaged",
    ),
}
# The job's files and working folders, the other nodes' too, have the routes of its state.
ASKED |= {
    route.replace("/state/", f"/{store}/"): (method, path.replace("/state/", f"/{at}/"))
    for store, at in (("record", "record"), ("work", "work"), ("work/of/{of:int}", "work/of/1"))
    for route, (method, path) in ASKED.items()
    if "/state/" in route
}
ASKED |= {
    "/agent/v1/{node:int}/state/torn": ("POST", "/agent/v1/0/state/torn"),
    "/agent/v1/{node:int}/work/torn": ("POST", "/agent/v1/0/work/torn"),
    "/agent/v1/{node:int}/work/unfinished": ("PUT", "/agent/v1/0/work/unfinished"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("tokens") / "h") as found:
        for name in ("a", "b"):
            found.submit(name)
        yield found


def test_the_table_is_whole() -> None:
    app = agents.create_app(state_routes.routes())
    routes = {route.path for route in app.routes}  # type: ignore[attr-defined]
    assert routes - {"/mlflow"} == ASKED.keys()


def strangers(server: Served) -> dict[str, str]:
    agent = server.auth.agent_token("a", 1)
    number, job, signed = agent.split(":")
    asked = {"name": f"u{time.time_ns()}", "role": "admin"}
    return {
        "none": "x",
        "owner": server.token(),
        "admin": server.people.post("/api/v1/tokens", json=asked).json()["token"],
        "rank": server.auth.rank_token("a", 1),
        "another launch": f"2:{job}:{signed}",
        "another job": f"{number}:b:{signed}",
        "half": agent[:-1],
        "longer": agent + "0",
    }


def test_agents_routes_open_to_agents_alone(server: Served) -> None:
    for who, token in strangers(server).items():
        for method, path in ASKED.values():
            told = server.people.request(method, path, headers=server.as_(token), content=b"[]")
            assert told.status_code == 401, (who, path)


@pytest.mark.parametrize("kind", ["agent", "rank"])
def test_no_job_is_a_person(server: Served, kind: str) -> None:
    make = server.auth.agent_token if kind == "agent" else server.auth.rank_token
    for row in ROUTES:
        told = server.people.request(row.method, row.path, headers=server.as_(make("a", 1)))
        assert told.status_code == 401, row


def test_another_jobs_agent_sees_and_changes_its_own_only(server: Served) -> None:
    """The job is the token's: no route takes the name of another."""
    other = server.as_(server.auth.agent_token("b", 1))
    event = {"kind": "note", "at": time.time(), "launch": 1, "attempt": 1, "node": 0, "seq": 1}
    told = server.people.post("/agent/v1/0/events", json=[event], headers=other)
    assert told.status_code == 200
    path = "/agent/v1/0/logs/1/0?offset=0"
    assert server.people.put(path, content=b"of b\n", headers=other).status_code == 200
    assert not (server.home.jobs / "a" / "attempts").exists()
    kinds = {
        name: [each["kind"] for each in server.people.get(f"/api/v1/jobs/{name}/events").json()]
        for name in ("a", "b")
    }
    assert "note" in kinds["b"]
    assert "note" not in kinds["a"]


def test_code_and_accounts_are_their_own_jobs(server: Served) -> None:
    blob = json.dumps({"chunks": []}).encode()
    digest = hashlib.sha256(blob).hexdigest()
    assert server.people.put(f"/api/v1/blobs/{digest}", content=blob).status_code == 204
    account = {"name": "s", "type": "s3", "bucket": "b", "credentials": {"access_key_id": "k"}}
    account["credentials"] = {"access_key_id": "k", "secret_access_key": "hush"}
    assert server.people.post("/api/v1/datastores", json=account).status_code == 201
    paths = {"o": {"path": "azureml://datastores/s/paths/x", "mode": "upload"}}
    spec = JOB["spec"] | {"name": "c", "outputs": paths}  # type: ignore[operator]
    told = server.people.post("/api/v1/jobs", json={"spec": spec, "code": digest})
    assert told.status_code == 201, told.text
    own, other = (server.as_(server.auth.agent_token(name, 1)) for name in ("c", "a"))
    for path in (f"/agent/v1/0/code/{digest}", "/agent/v1/0/accounts/s"):
        assert server.people.get(path, headers=own).status_code == 200, path
        told = server.people.get(path, headers=other)
        assert told.status_code == 404, path
        held_to(told)
    late = server.as_(server.auth.agent_token("c", 2))  # a launch that is not, or not any more
    assert server.people.get("/agent/v1/0/accounts/s", headers=late).status_code == 401
    assert server.people.post("/agent/v1/0/hello", headers=late).status_code == 401


def test_what_one_launch_tells_is_not_anothers(server: Served) -> None:
    late = server.as_(server.auth.agent_token("a", 2))
    event = {"kind": "note", "at": time.time(), "launch": 1, "attempt": 1, "node": 0, "seq": 1}
    for launch, status in ((1, 400), (2, 200)):
        told = server.people.post(
            "/agent/v1/0/events", json=[event | {"launch": launch}], headers=late
        )
        assert told.status_code == status
    assert server.people.get("/agent/v1/0/orders?attempt=1", headers=late).json()["do"] == "leave"
    job = server.people.get("/api/v1/jobs/a").json()
    assert job["node_states"][0]["state"] == "ABSENT"
