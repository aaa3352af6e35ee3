"""Every route of a server with real jobs answers as `openapi.json` says: no key less, none more."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from pydantic import TypeAdapter
from starlette.routing import compile_path

import allranks.server.api.endpoint  # noqa: F401  (it registers a converter of paths)
from allranks.api.events import DATA
from allranks.api.routes import PREFIX, ROUTES, Route
from allranks.core.data.upload_manifest import Manifest
from allranks.events import Kind
from tests.support import command_line, leave_nothing, until

# A real server with two dozen jobs.
pytestmark = pytest.mark.slow

TRAIN = """\
import os, pathlib, time
for step in range(3):
    print(f"loss: {1 / (step + 1)}", flush=True)
pathlib.Path(os.environ["OUT"], "weights").write_text("w")
state = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"])
state.joinpath("checkpoint").write_text("c")
if not state.joinpath("link").is_symlink():
    state.joinpath("link").symlink_to("checkpoint")
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/model.txt").write_text("m")
time.sleep(0.5)
"""
ENVIRONMENT = "current"
LOSS = {"loss": "loss: ([0-9.]+)"}
PYTHON = sys.executable
DONE = {
    "name": "done",
    "state": "kept",
    "command": f"OUT=${{{{outputs.model}}}} {PYTHON} train.py ${{{{inputs.rate}}}}",
    "environment": ENVIRONMENT,
    "experiment_name": "e",
    "inputs": {"rate": 0.5},
    "outputs": {"model": {"name": "left"}},
    "distribution": {"type": "pytorch", "process_count_per_instance": 2},
    "metrics": LOSS,
    "tags": {"a": "b"},
}
FAILED = {
    "name": "failed",
    "command": f"{PYTHON} -c 'import nonsuch'",
    "environment": ENVIRONMENT,
    "experiment_name": "e",
}
LIVE = {
    "name": "live",
    "command": f"{PYTHON} -c 'import time; print(1); time.sleep(600)'",
    "environment": ENVIRONMENT,
}
SWEEP = {
    "name": "sweep",
    "type": "sweep",
    "trial": {"command": "echo loss: ${{search_space.x}}", "environment": ENVIRONMENT},
    "search_space": {"x": {"type": "choice", "values": [1, 2, 3, 4, 5, 6, 7, 8]}},
    "sampling_algorithm": "grid",
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 8, "max_concurrent_trials": 4},
}
SWEEP["trial"]["metrics"] = LOSS  # type: ignore[index]
PIPELINE = {
    "name": "pipeline",
    "type": "pipeline",
    "outputs": {"o": None},
    "jobs": {
        "one": {
            "command": "echo 1 > ${{outputs.o}}/x",
            "environment": ENVIRONMENT,
            "outputs": {"o": "${{parent.outputs.o}}"},
        },
        "two": {
            "command": "false; cat ${{inputs.i}}/x; exit 3",
            "environment": ENVIRONMENT,
            "inputs": {"i": "${{parent.jobs.one.outputs.o}}"},
        },
    },
}
COMPONENT = {
    "name": "c",
    "type": "command",
    "command": "echo ${{inputs.n}}",
    "environment": "current",
}
COMPONENT["inputs"] = {"n": {"type": "integer", "default": 1}}  # type: ignore[assignment]
CONDA = {"name": "i", "image": "x", "conda_file": {"dependencies": ["python=3.11", {"pip": []}]}}
S3 = {"name": "s", "type": "s3", "bucket": "b", "region": "r"}
S3["credentials"] = {"access_key_id": "a", "secret_access_key": "b"}  # type: ignore[assignment]
SCHEDULE = {"name": "nightly", "trigger": {"type": "cron", "expression": "0 4 * * *"}}
SCHEDULE["create_job"] = LIVE  # type: ignore[assignment]
HOURLY = {"type": "recurrence", "frequency": "day", "interval": 2, "schedule": {"hours": [4]}}


class Server:
    """A running server, whose answers are held to its own description."""

    def __init__(self, client: httpx.Client, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.schema = strict(self.client.get("/openapi.json").json())
        self.asked: set[str] = set()

    def __call__(self, method: str, path: str, data: Any = None) -> Any:
        row = row_of(method, path)
        self.asked.add(row.address)
        found = self.client.request(method, f"{PREFIX}{path}", json=data)
        assert found.status_code == row.status, f"{row.address}: {found.text}"
        operation = self.schema["paths"][compile_path(row.path)[1]][method.lower()]
        content = operation["responses"][str(row.status)].get("content", {})
        ((kind, described),) = content.items() or [("", {})]
        if not kind:
            return None
        assert found.headers["content-type"].startswith(kind), row.address
        lines = [line for line in found.text.splitlines() if line.strip()]
        several = map(json.loads, lines) if kind.endswith("ndjson") else [found.json()]
        for each in several:
            self.check(each, described["schema"], row.address)
        return each

    def check(self, value: Any, schema: Any, where: str) -> None:
        whole = {"components": self.schema["components"], **schema}
        found = jsonschema.Draft202012Validator(whole)
        wrong = jsonschema.exceptions.best_match(found.iter_errors(value))
        if wrong is not None:
            leaf = min(wrong.context or [wrong], key=lambda e: (len(e.context or ()), len(e.path)))
            raise AssertionError(f"{where}: {list(wrong.path)}: {leaf.message[:600]}")

    def until_ended(self, *names: str) -> None:
        over = ("Completed", "Failed", "Canceled")
        for name in names:
            until(lambda name=name: self("GET", f"/jobs/{name}/wait")["status"] in over, 60)


def strict(schema: Any) -> Any:
    """The description with no key allowed that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(each) for key, each in schema.items()}
    if found.get("type") == "object" and isinstance(found.get("properties"), dict):
        found["additionalProperties"] = False
    return found


def row_of(method: str, path: str) -> Route:
    for row in ROUTES:
        if row.method == method and compile_path(row.path)[0].match(
            PREFIX + path.partition("?")[0]
        ):
            return row
    raise AssertionError(f"no route for {method} {path}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home, folder = tmp_path_factory.mktemp("answers") / "h", tmp_path_factory.mktemp("code")
    (folder / "train.py").write_text(TRAIN)
    allranks = command_line(home, folder)
    assert allranks("server", "start").returncode == 0
    try:
        url = json.loads((home / "server.json").read_text())["url"]
        token = {"authorization": f"Bearer {(home / 'token').read_text().strip()}"}
        with httpx.Client(base_url=url, headers=token, timeout=60, trust_env=False) as client:
            yield Server(client, folder)
    finally:
        leave_nothing(home)


MODEL = {"type": "custom_model", "path": "azureml:m:1"}


def submission(server: Server, spec: Any) -> dict[str, Any]:
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return {"spec": spec, "in_place": str(server.folder), "base": base}


@pytest.mark.end_to_end
def test_every_route_answers_as_described(server: Server) -> None:
    for spec in (DONE, FAILED, {**LIVE, "session": {}}, SWEEP, PIPELINE):
        assert server("POST", "/jobs/checks", submission(server, spec)) is not None
        assert server("POST", "/jobs", submission(server, spec))["name"] == spec["name"]
    inside = {"name": "guest", "command": "true", "inside": "live"}
    assert server("POST", "/jobs/checks", submission(server, inside)) == []
    server("POST", "/jobs/list", [submission(server, {**FAILED, "name": "listed"})])
    stream = {"follow": True}
    for name in ("done", "failed", "sweep", "pipeline"):
        assert server("POST", f"/jobs/{name}/stream", stream)["last"]
    server.until_ended("done", "failed", "sweep", "pipeline", "listed")
    until(lambda: server("GET", "/jobs/live")["status"] == "Running")
    until(lambda: any(job["load"] for job in server("GET", "/top")))
    server("POST", "/jobs/live/stacks")
    server("POST", "/jobs/live/profile", {"seconds": 0.5})
    server("GET", "/jobs/live/profile")
    server("DELETE", "/jobs/live/profile")
    server("GET", "/jobs/done/ranks")
    server("POST", "/jobs/live/channels", {"command": ["true"]})

    made(server)
    endpoints(server)
    for name in ("done", "failed", "live", "sweep", "sweep_0", "pipeline"):
        shown(server, name)
    lists(server)
    changes(server)
    removals(server)
    asked = {row.address for row in ROUTES} - server.asked
    # Bytes: `tests/cli/test_download.py`, and of a channel `tests/cli/test_enter.py`; a job that is
    # held: `tests/cli/test_hold.py`.
    bytes_of = "/(files|checksums|bundle|code|blobs|channels/|release)"
    assert [address for address in asked if not re.search(bytes_of, address)] == []


def uploads(server: Server) -> None:
    """An upload of an empty folder: its manifest is all that is sent."""
    manifest = Manifest("empty").dump()
    digest = hashlib.sha256(manifest).hexdigest()
    head = json.dumps([[digest, len(manifest)]]).encode()
    sent = server.client.put("/api/v1/blobs/pack", content=head + b"\n" + manifest)
    assert sent.status_code == 204, sent.text
    upload = server("POST", "/uploads", {"manifest": digest})
    server("POST", "/data", {"name": "uploaded", "path": upload["path"]})
    server("GET", "/data/uploaded/files")
    server("GET", "/data/uploaded/links")
    (challenge,) = server("POST", "/uploads/challenges", [str(server.folder)])
    proof = {"nonce": challenge["nonce"], "sealed": challenge["sealed"], "digest": ""}
    assert server("POST", "/uploads/proofs", [proof]) == [False]


def made(server: Server) -> None:
    """Assets of every kind, a schedule, a compute and a token."""
    server("POST", "/computes", {"name": "k", "type": "local", "max_instances": 2, "location": "x"})
    server("POST", "/environments?label=l", {"name": "pips", "pip": ["numpy"], "tags": {"a": "b"}})
    server("POST", "/environments", CONDA)
    server("POST", "/environments/pips/clone", {"name": "cloned"})
    server("PUT", "/environments/map", {"azureml:x": "pips"})
    server("POST", "/environments/recipe", {"environment": "pips"})
    server("POST", "/components", COMPONENT)
    server("POST", "/datastores", S3)
    server("PUT", "/datastores/s/default")
    server("PUT", "/datastores/s/uploads")
    server("POST", "/data/checks", {"name": "checked", "path": "s3://b/x"})
    server("PUT", "/datastores/default/default")
    data = {"name": "d", "path": "/x", "tags": {"a": "b"}, "type": "uri_file"}
    server("POST", "/data", data)
    server("PUT", "/data/map", {"s3://a/": "s3://b/"})
    uploads(server)
    model = {"name": "m", "job": "done", "path": "outputs/model.txt"}
    assert server("POST", "/models", model)["lineage"]["experiment"] == "e"
    for each in (SCHEDULE, {**SCHEDULE, "name": "daily", "trigger": HOURLY}):
        server("POST", "/schedules", {"schedule": each, "submission": submission(server, LIVE)})
    server("GET", "/tokens/mine")
    server("POST", "/tokens", {"name": "p", "role": "member", "expires_days": 1})
    server("PUT", "/instances/map", {"x1": 8})
    about = {"name": "run-1", "experiment": "e", "display_name": "r", "source": "/runs/1"}
    points = json.dumps({"points": [["loss", None, 0, 1.0, 0.5]]}) + "\n"
    run = {**about, "began": 1.0, "ended": 2.0, "lines": points}
    server("POST", "/jobs/imported", {"runs": [run]})


PIPELINE_COMPONENT = {
    "type": "pipeline",
    "jobs": {"one": {"type": "command", "command": "true", "environment": "current"}},
}


def endpoints(server: Server) -> None:
    """An endpoint whose replica does not end."""
    server("POST", "/endpoints", {"name": "e", "tags": {"a": "b"}, "kind": "managed"})
    spec = {"name": "blue", "endpoint_name": "e", "command": "sleep 600", "model": "azureml:m:1"}
    job = submission(
        server, {"type": "command", "command": "sleep 600", "inputs": {"model": MODEL}}
    )
    body = {"deployment": spec, "submission": job, "all_traffic": True}
    server("POST", "/endpoints/e/deployments", body)
    blue = "/endpoints/e/deployments/blue"
    until(lambda: server("GET", blue)["replicas"] and server("GET", blue)["counts"])
    server("GET", "/endpoints")
    server("GET", "/endpoints/e")
    server("GET", "/endpoints/e/series")
    server("GET", "/endpoints/e/events")
    server("PATCH", "/endpoints/e", {"mirror_traffic": {"blue": 10}})
    server("PATCH", blue, {"instance_count": 2})
    server("GET", "/endpoints/e/keys")
    server("POST", "/endpoints/e/keys", {"key": "secondary"})
    server("PATCH", "/endpoints/e", {"traffic": {}, "mirror_traffic": {}})
    server("DELETE", blue)
    server("DELETE", "/endpoints/e")
    batch = "/batch-endpoints/b"
    server("PUT", batch, {"tags": {"a": "b"}})
    spec = {"component": PIPELINE_COMPONENT, "description": "d"}
    body = {"deployment": spec, "component": PIPELINE_COMPONENT, "default": True}
    server("PUT", f"{batch}/deployments/chain", body)
    server("GET", batch)
    server("GET", "/batch-endpoints")
    job = server("POST", f"{batch}/jobs", {"properties": {}})["name"]
    server("GET", f"{batch}/jobs/{job}")
    server.until_ended(job)
    server("DELETE", f"{batch}/deployments/chain")
    server("DELETE", batch)


def shown(server: Server, name: str) -> None:
    """Everything about one job."""
    ways = ["", "/metrics", "/metrics/summary", "/resources", "/code", "/merged"]
    for event in server("GET", f"/jobs/{name}/events"):
        data = strict(TypeAdapter(DATA[Kind(event["kind"])]).json_schema())
        server.check(event["data"], data, event["kind"])
    for way in [*ways, "/files", "/files?too_long=true", "/links", "/wait?timeout=0"]:
        server("GET", f"/jobs/{name}{way}")
    server("POST", f"/jobs/{name}/metrics/follow", {"wait": 0})
    if name not in ("sweep", "pipeline"):
        assert "peaks" not in server("GET", f"/jobs/{name}"), "they are work"
        assert "peaks" in server("GET", f"/jobs/{name}?peaks=true")
        whole = server("GET", f"/jobs/{name}/plan")
        assert server("GET", f"/jobs/{name}/plan?first=0&most=1")["ranks"] == whole["ranks"][:1]
    for each in server("GET", f"/jobs/{name}/metrics/summary")["series"]:
        server("GET", f"/jobs/{name}/metrics/ranks?cells=true&metric={each['name']}")
    if name in ("failed", "pipeline"):
        server("GET", f"/jobs/{name}/explanation")


def lists(server: Server) -> None:
    """Lists, and each thing in them."""
    server("POST", "/visit")
    server("GET", "/server")
    assert server("GET", "/jobs?metrics=true&children=true")
    assert server("GET", "/compare?job=done&job=failed")["differences"]
    for path in ("changes?timeout=0", "resolve?job=@last", "resolve?job=don", "instances/map"):
        server("GET", f"/{path}")
    assert server("GET", "/computes")["computes"]
    assert server("GET", "/computes/local")["hosts"]
    for path in ("schedules/nightly", "schedules/daily", "datastores/s", "models/m/manifest"):
        server("GET", f"/{path}")
    for kind, name in (("environments", "i"), ("components", "c"), ("data", "d"), ("models", "m")):
        assert server("GET", f"/{kind}")
        assert server("GET", f"/{kind}?name={name}")
        server("GET", f"/{kind}/{name}")
    for kind in ("schedules", "datastores", "tokens"):
        assert server("GET", f"/{kind}")
    for path in ("environments/map", "data/map", "states", "states?own=true"):
        server("GET", f"/{path}")
    assert server("GET", "/states/kept")["versions"]
    assert server("GET", "/states/kept/manifest")
    files = server("GET", "/jobs/done/files")
    assert server("GET", f"/jobs/done/checksums/{files[0]['path']}?size=1")


def changes(server: Server) -> None:
    """What changes something and deletes nothing."""
    server("PATCH", "/jobs/done", {"tags": {"x": "y"}})
    server("POST", "/jobs/live/preempt", {"by": "me"})
    until(lambda: server("GET", "/jobs/live")["status"] != "Running")
    held = {**LIVE, "name": "held"}
    server("POST", "/jobs", submission(server, held))
    until(lambda: server("GET", "/jobs/held")["status"] == "Running")
    server("POST", "/jobs/held/kill?rank=0", {"by": "me"})
    server("POST", "/jobs/held/cancel")
    server.until_ended("held", "live")
    for name in ("done", "pipeline"):
        again = server("POST", f"/jobs/{name}/restart", {"set": []})
        server.until_ended(again["name"])
    server("PATCH", "/computes/k", {"max_instances": 3})
    server("PUT", "/computes/default", {"name": "k"})
    server("PUT", "/computes/map", {"gpu": "k"})
    for kind, name in (("environments", "i"), ("components", "c"), ("data", "d"), ("models", "m")):
        server("PUT", f"/{kind}/{name}/labels", {"labels": ["good"]})
    server("POST", "/schedules/daily/trigger")
    server("POST", "/schedules/daily/runs", {"ExperimentName": "e"})
    server("POST", "/schedules/daily/pause")
    server("POST", "/schedules/daily/resume")
    server("PUT", "/server/front", {"host": None})
    server("POST", "/states/kept/restore", {"version": 1})
    server("POST", "/blobs/missing", ["0" * 64])


def removals(server: Server) -> None:
    for dry_run in (True, False):
        server("POST", "/gc", {"older_than_seconds": 0, "dry_run": dry_run, "jobs": dry_run})
    server("DELETE", "/jobs/failed")
    server("DELETE", "/states/kept")
    for kind, name in (("environments", "i"), ("components", "c"), ("data", "d"), ("models", "m")):
        server("DELETE", f"/{kind}/{name}:1")
    for path in ("schedules/daily", "datastores/s", "computes/k", "tokens/p"):
        server("DELETE", f"/{path}")
    server("GET", "/server/stop?all=true")
    server("POST", "/server/stop?all=true")


@pytest.mark.parametrize("key", ["name", "door"])
def test_a_key_that_no_type_has_fails(server: Server, key: str) -> None:
    value = server("GET", "/computes")["computes"][0]
    schema = {"$ref": "#/components/schemas/ComputeAnswer"}
    server.check(value, schema, "a compute")
    changed = {**value, f"{key}_": value[key]}
    for wrong in (changed, {k: v for k, v in value.items() if k != key}):
        with pytest.raises(AssertionError, match=key):
            server.check(wrong, schema, "a compute")


def test_each_kind_of_event_has_a_type_of_its_data() -> None:
    assert DATA.keys() == {*Kind}
