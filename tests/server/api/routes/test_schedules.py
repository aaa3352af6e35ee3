"""Schedules by the API."""

from __future__ import annotations

from pathlib import Path

from allranks.server.schedules.requests import with_values
from tests.server.serving import served

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
