"""Whatever is asked of the server: an answer or a sentence, and a record that can still be read.

ALLRANKS_TEST_FUZZ=N takes N times as many examples.
"""

import copy
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allranks.store.database import open_database
from allranks.store.jobs.records import Records
from tests.server.serving import Served, held_to, served


def examples(number: int) -> Any:
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    many = number * int(os.environ.get("ALLRANKS_TEST_FUZZ", "1"))
    return settings(max_examples=many, database=None, suppress_health_check=quiet)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("fuzz") / "h") as found:
        found.submit("j")
        yield found


# ---------------------------------------------------------------- people

JUNK: list[Any] = [None, True, -1, 1.5, float("nan"), 2**63, -(2**70), 10**300, "", "\0", "\ud800"]
JUNK += ["../..", "/etc/passwd", "a" * 300, "a" * 70_000, [], [1], ["x"], [None], [[]], {}]
JUNK += [{"a": 1}, {"x": None}, {"a": {"b": [{}]}}, "${{inputs.x}}", "${{", "s3://", "http://[::1"]
JUNK += ["azureml:a:1", "azureml://jobs/j/outputs/../x", "https://x@y:99999999/z", "\u202e", "-"]

DIGEST = "0" * 64
SPEC = {
    "name": "n",
    "type": "command",
    "command": "echo ${{inputs.x}}",
    "environment": "current",
    "experiment_name": "e",
    "tags": {"a": "b"},
    "environment_variables": {"A": "b"},
    "compute": "local",
    "resources": {"instance_count": 1, "shm_size": "1g", "properties": {"local": {}}},
    "distribution": {"type": "pytorch", "process_count_per_instance": 1},
    "limits": {"timeout": 5},
    "inputs": {"x": 1, "y": {"type": "uri_file", "path": "/x", "mode": "download"}},
    "outputs": {"o": {"path": "azureml://datastores/d/paths/x", "mode": "upload", "name": "n"}},
    "metrics": {"loss": "a(.)"},
    "warm": ["json"],
    "retry": {"max_attempts": 1, "on": ["hang"]},
}
ENVIRONMENT = {"name": "e", "version": "1", "pip": ["numpy"], "tags": {"a": "b"}}
IMAGE = {"name": "i", "image": "x", "conda_file": {"dependencies": ["python=3.11", {"pip": []}]}}
S3 = {"name": "s", "type": "s3", "bucket": "b", "region": "r", "credentials": {"access_key": "a"}}
BODIES: list[tuple[str, str, Any]] = [
    ("POST", "jobs", {"spec": SPEC, "in_place": "/", "base": {"PATH": "/bin"}, "tools": {}}),
    ("POST", "jobs", {"spec": SPEC, "code": DIGEST, "diff": "d"}),
    ("POST", "computes", {"name": "c", "type": "fake", "max_instances": 2, "options": {}}),
    ("PATCH", "computes/fake", {"max_instances": 2, "options": {}}),
    ("PUT", "computes/default", {"name": "fake"}),
    ("PUT", "computes/map", {"gpu": "fake"}),
    ("POST", "environments", ENVIRONMENT),
    ("POST", "environments", IMAGE),
    ("PUT", "environments/map", {"a": "b"}),
    ("POST", "environments/recipe", {"environment": ENVIRONMENT}),
    ("POST", "environments/e:1/clone", {"name": "z"}),
    ("POST", "datastores?replace=true", S3),
    ("POST", "data", {"name": "d", "version": "1", "path": "/x", "tags": {"a": "b"}}),
    ("PUT", "data/map", {"s3://a/": "s3://b/"}),
    ("POST", "models", {"name": "m", "version": "1", "path": "outputs/x", "job": "j"}),
    ("POST", "models", {"name": "m", "files": [{"path": "a/b", "size": 1, "sha256": DIGEST}]}),
    ("POST", "jobs/j/stream", {"positions": {"1/0": 5}, "ranks": [0], "follow": False}),
    ("POST", "jobs/j/bundle", [{"path": "a", "size": 5}]),
    ("POST", "blobs/missing", [DIGEST]),
    ("POST", "gc", {"older_than_seconds": 5, "dry_run": True, "jobs": True}),
]
AS_JSON = {"content-type": "application/json"}
RAW = [b"", b"{", b"\xff", b"[" * 9_000, b"NaN", b"1" * 5_000, b'"\\ud800"', b"null", b"\0"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    found = value.items() if isinstance(value, dict) else ()
    for key, each in enumerate(value) if isinstance(value, list) else found:
        yield from places(each, (*path, key))


@st.composite
def nearly(draw: st.DrawFn, right: Any) -> bytes:
    """A body that is right but for one or two places in it; or none at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(RAW))
    body = copy.deepcopy(right)
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from([*places(body)][1:] or [("x",)]))
        at = body
        for step in way:
            at = at[step]
        at[last] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return json.dumps(body).encode()


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes]:
    method, path, body = draw(st.sampled_from(BODIES))
    return method, path, draw(nearly(body))


@examples(120)
@given(requests())
@pytest.mark.medium
def test_bodies_that_are_nearly_right(server: Served, asked: tuple[str, str, bytes]) -> None:
    method, path, body = asked
    if path.endswith("stream") and b'"follow": false' not in body:
        return  # it would follow the job to its end
    held_to(server.people.request(method, f"/api/v1/{path}", content=body, headers=AS_JSON))


def test_and_all_can_still_be_read(server: Served) -> None:
    for path in ("jobs", "top", "computes", "computes/fake", "environments", "data", "datastores"):
        assert server.people.get(f"/api/v1/{path}").status_code == 200, path


STEPS = ["", "x", "..", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "a%00b"]
STEPS += ["%ff%fe", "%ED%A0%80", "-1", "9223372036854775808", "9" * 30, "1e5", "nan", "-inf"]
STEPS += ["a" * 300, "a" * 5_000, "%0a", "/etc/passwd", "a:1", "a@b", ":", "%F0%9F%98%80", "j"]
PATHS = ["jobs?limit={}", "jobs/{}", "jobs/j/events?after={}", "jobs/j/metrics?most={}"]
PATHS += ["jobs/j/wait?timeout=-{}", "jobs/j/files/{}", "jobs/j/checksums/x?size={}", "models/{}"]
PATHS += ["models/{}/files/x", "data/{}", "environments/{}", "datastores/{}", "computes/{}", "{}"]


@pytest.mark.parametrize("path", PATHS)
def test_addresses(server: Served, path: str) -> None:
    for step in STEPS:
        told = server.people.get("/api/v1/" + path.format(step))
        held_to(told)
        assert "root:" not in told.text


@pytest.mark.slow
@pytest.mark.end_to_end
def test_what_the_schema_allows_and_what_it_does_not(server: Served) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_dict(server.people.get("/openapi.json").json())
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith(("/server/stop", "/wait", "/follow", "/changes")):
            continue  # ends its jobs; waits

        @examples(4)
        @given(operation.as_strategy())
        def ask(case: Any) -> None:
            if "name" in (case.path_parameters or {}) and len(case.path_parameters["name"]) % 2:
                case.path_parameters["name"] = "j"
            case.headers = {}
            session = pytest.importorskip("requests").Session()
            session.trust_env = False
            with session:
                shown = server.as_(server.token())
                told = case.call(base_url=server.url, session=session, headers=shown)
            held_to(httpx.Response(told.status_code, content=told.content))

        ask()


# ---------------------------------------------------------------- agents


def event(kind: str, **data: Any) -> dict[str, Any]:
    told = {"kind": kind, "at": time.time(), "launch": 1, "attempt": 1, "node": 0, "rank": None}
    return {**told, "seq": 1, "data": data}


PLACE: dict[str, Any] = {"address": "10.0.0.1", "host": "h", "ports": [1, 2], "cpus": 2}
EVENTS = [
    event("hello", pid=1),
    event("note", doing="x"),
    event("ready", **PLACE, interface="lo"),
    {**event("rank_ended", code=0, ended_at=1.0), "rank": 0},
    event("ended", reason="RANK_EXITED", failed_at=1.0, code=1, message="m", hint="h"),
    event("drained"),
    event("bye"),
]
READ = ["", "/events", "/metrics", "/metrics/summary", "/resources"]


@examples(25)
@given(st.sampled_from(EVENTS).flatmap(lambda each: nearly([each])))
@pytest.mark.medium
def test_what_agents_tell_leaves_a_record_that_can_be_read(server: Served, body: bytes) -> None:
    name = f"a{time.time_ns()}"
    server.submit(name)
    shown = server.as_(server.auth.agent_token(name, 1))
    held_to(server.people.post("/agent/v1/0/events", content=body, headers=shown))
    for path in READ[:2]:
        assert server.people.get(f"/api/v1/jobs/{name}{path}").status_code == 200
    database = open_database(server.home.database)
    try:
        Records(database).get(name)
    finally:
        database.dispose()


@pytest.mark.parametrize("now", ["-1e300", "1e300", "1e12", "nan", "0", "1e10", "x"])
def test_clocks_of_agents(server: Served, now: str) -> None:
    name = f"c{time.time_ns()}"
    server.submit(name)
    shown = server.as_(server.auth.agent_token(name, 1))
    held_to(server.people.post(f"/agent/v1/0/events?now={now}", json=EVENTS[:1], headers=shown))
    for path in READ[:2]:
        assert server.people.get(f"/api/v1/jobs/{name}{path}").status_code == 200


STACKS = [{"rank": 0, "pid": 1, "frames": [], "threads": []}]
STILL = {"0": [1.0, 2.0, 3.0, None]}


@examples(25)
@given(st.sampled_from([("stacks", STACKS), ("still", STILL)]), st.data())
def test_where_ranks_are(server: Served, about: tuple[str, Any], data: st.DataObject) -> None:
    what, right = about
    shown = server.as_(server.auth.agent_token("j", 1))
    body = data.draw(nearly(right))
    held_to(server.people.put(f"/agent/v1/0/{what}/1", content=body, headers=shown))


POINTS = {"points": [["loss", 0, 1, 1.0, 2.0]]}
USED = {"at": 1.0, "points": [["cpu", None, 0, 2.0]]}


@examples(40)
@given(
    st.sampled_from([POINTS, USED]).flatmap(nearly),
    st.sampled_from(["metrics", "resources", "x"]),
    st.sampled_from(["0", "0", "-1", "9" * 30, "nan", ""]),
)
def test_points(server: Served, body: bytes, feed: str, offset: str) -> None:
    shown = server.as_(server.auth.agent_token("j", 1))
    path = f"/agent/v1/0/points/1/{feed}?offset={offset}"
    held_to(server.people.put(path, content=body + b"\n", headers=shown))


@pytest.mark.parametrize("path", READ)
def test_and_the_job_can_still_be_read(server: Served, path: str) -> None:
    assert server.people.get(f"/api/v1/jobs/j{path}").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "logs/1/0?offset=-1",
        "logs/1/0",
        "logs/0/0?offset=0",
        "logs/2/0?offset=0",  # an attempt that has not begun
        "logs/99999999999999999999/0?offset=0",
        "logs/1/1?offset=0",
        "points/2/metrics?offset=0",
    ],
)
def test_no_output_but_of_ranks_that_are(server: Served, path: str) -> None:
    shown = server.as_(server.auth.agent_token("j", 1))
    told = server.people.put(f"/agent/v1/0/{path}", content=b"x", headers=shown)
    held_to(told)
    assert told.status_code in (400, 404)


# ---------------------------------------------------------------- too much


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/agent/v1/0/events"])
@pytest.mark.medium
def test_a_body_that_is_too_large_is_not_read(server: Served, path: str) -> None:
    shown = server.as_(server.token() if "api" in path else server.auth.agent_token("j", 1))

    def pieces() -> Iterator[bytes]:
        for _ in range(66):
            yield b" " * (1 << 20)

    told = server.people.post(path, content=b" " * (65 << 20), headers=shown)
    assert (told.status_code, told.json()["error"]) == (413, "too_large")
    held_to(told)
    told = server.people.post(path, content=pieces(), headers=shown)  # its size is not told before
    assert told.status_code == 413
    held_to(told)
