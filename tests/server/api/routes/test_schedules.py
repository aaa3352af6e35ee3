"""Schedules by the API."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from allranks.errors import SpecError
from allranks.server.schedules.requests import with_values
from allranks.spec.schedule import parse_schedule
from tests.server.serving import served
from tests.support import until

SCHEDULE = {
    "name": "nightly",
    "trigger": {"type": "cron", "expression": "0 0 1 1 *"},
    "create_job": {"command": "true"},
}


def test_each_trigger_submits_a_job(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        job = {"spec": {"command": "true", "environment": "current"}, "in_place": "/"}
        body = {"schedule": SCHEDULE, "submission": job}
        made = server.people.post("/api/v1/schedules", json=body)
        assert made.status_code in (200, 201), made.text
        answers = [server.people.post("/api/v1/schedules/nightly/trigger") for _ in range(3)]
        names = {answer.json()["last_job"] for answer in answers}
        jobs = {job["name"] for job in server.people.get("/api/v1/jobs").json()}
        assert len(names) == 3
        assert jobs == names


def test_a_request_names_a_version_of_a_pipeline_endpoint(tmp_path: Path) -> None:
    step = {"type": "command", "command": "true", "environment": "current"}
    manual = {"trigger": {"type": "manual"}, "create_job": {"type": "pipeline", "jobs": {}}}

    def create(name: str, step_name: str, tags: dict[str, str]) -> None:
        spec = {"type": "pipeline", "jobs": {step_name: step}}
        schedule = {**manual, "name": name, "tags": tags}
        body = {"schedule": schedule, "submission": {"spec": spec, "in_place": "/"}}
        made = server.people.post("/api/v1/schedules", json=body)
        assert made.status_code == 201, made.text

    def post(query: str, name: str = "endpoint") -> object:
        answer = server.people.post(f"/api/v1/schedules/{name}/runs{query}", json={})
        if answer.status_code != 200:
            return answer.status_code
        job = server.people.get(f"/api/v1/jobs/{answer.json()['Id']}").json()
        return [*job["spec"]["jobs"]]

    with served(tmp_path) as server:
        create("zero", "a", {})
        create("one", "b", {"azureml.endpoint_versions": "{"})
        create("endpoint", "b", {"azureml.endpoint_versions": '["zero", "one", "gone"]'})
        assert post("") == post("?by=Id/endpoint") == post("?by=Name?name=endpoint") == ["b"]
        by_name = "?by=Name?name=endpoint&pipelineVersion="
        assert post("?by=Id/endpoint/0") == post(f"{by_name}0") == ["a"]
        assert post(f"{by_name}1") == ["b"]
        for wrong in ("2", "3", "-1", "x", "\u0662"):
            assert post(f"{by_name}{wrong}") == 404
        assert post(f"{by_name}0", "zero") == post(f"{by_name}0", "one") == 404
        assert server.people.post("/api/v1/schedules/zero/pause").status_code == 200
        assert post(f"{by_name}0") == 409


def test_a_version_of_somebody_else_does_not_run(tmp_path: Path) -> None:
    job = {"spec": {"command": "true", "environment": "current"}, "in_place": "/"}
    manual = {"trigger": {"type": "manual"}, "create_job": {"command": "true"}}
    with served(tmp_path) as server:
        token = {"name": "ann", "role": "member"}
        ann = server.as_(server.people.post("/api/v1/tokens", json=token).json()["token"])
        for name, who in (("owners", None), ("anns", ann)):
            tags = {"azureml.endpoint_versions": '["owners"]'}
            body = {"schedule": {**manual, "name": name, "tags": tags}, "submission": job}
            made = server.people.post("/api/v1/schedules", json=body, headers=who)
            assert made.status_code == 201, made.text
        runs = "/api/v1/schedules/anns/runs"
        assert (
            server.people.post(f"{runs}?pipelineVersion=0", json={}, headers=ann).status_code == 403
        )
        assert server.people.post(runs, json={}, headers=ann).status_code == 200
        # What the owner runs for ann stays the owner's: a member may not get it by naming it.
        job = server.people.post(f"{runs}?pipelineVersion=0", json={}).json()["Id"]
        cancel = server.people.post(f"/api/v1/jobs/{job}/cancel", json={}, headers=ann)
        assert cancel.status_code == 403, cancel.text


@pytest.mark.parametrize("role", ["revoked", "reader", "member"])
def test_a_schedule_submits_while_its_maker_may(tmp_path: Path, role: str) -> None:
    job = {"spec": {"command": "true", "environment": "current"}, "in_place": "/"}
    with served(tmp_path) as server:
        token = {"name": "ann", "role": "member"}
        ann = server.as_(server.people.post("/api/v1/tokens", json=token).json()["token"])
        body = {"schedule": SCHEDULE, "submission": job}
        made = server.people.post("/api/v1/schedules", json=body, headers=ann)
        assert made.status_code == 201, made.text
        if role != "member":
            assert server.people.delete("/api/v1/tokens/ann").status_code < 300
        if role == "reader":
            server.people.post("/api/v1/tokens", json={**token, "role": role}).raise_for_status()
    with contextlib.closing(sqlite3.connect(server.home.database)) as database, database:
        database.execute("UPDATE schedules SET next_at = ?", [time.time() - 1])
    with served(tmp_path) as server:

        def schedule() -> dict[str, object]:
            answer: dict[str, object] = server.people.get("/api/v1/schedules/nightly").json()
            return answer

        until(lambda: schedule()["last_job"] or schedule()["last_error"])
        if role == "member":
            assert schedule()["last_job"]
        else:
            assert "'ann', who made the schedule, may not submit" in str(schedule()["last_error"])
            assert server.people.get("/api/v1/jobs").json() == []


def test_a_request_changes_inputs_and_settings() -> None:
    spec = {"type": "pipeline", "inputs": {"data": {"path": "/a"}, "rate": 1, "Size": 1}}
    request = {
        "ParameterAssignments": {"rate%": 2, "Size": 3, "other": 3},
        "DataPathAssignments": {"data": {"DataStoreName": "s", "RelativePath": "b/"}},
        "ContinueRunOnStepFailure": True,
        "ExperimentName": "e",
        "RunSource": "SDK",
        "Unknown": 1,
    }
    job, notes = with_values(spec, request)
    data = {"type": "uri_folder", "path": "azureml://datastores/s/paths/b/"}
    assert job["inputs"] == {"data": data, "rate": 2, "Size": 3}
    assert (job["settings"], job["experiment_name"]) == ({"continue_on_step_failure": True}, "e")
    assert notes == ["no effect here: Unknown", "no effect here: other"]
    assert "settings" not in spec


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00", "9999-12-31T23:59:59+23:59"])
def test_a_time_at_an_end_of_the_calendar_is_refused(time: str) -> None:
    """In other time zones there is none."""
    trigger = {"type": "recurrence", "frequency": "month", "start_time": time}
    with pytest.raises(SpecError, match="is not a time"):
        parse_schedule({**SCHEDULE, "trigger": trigger})
