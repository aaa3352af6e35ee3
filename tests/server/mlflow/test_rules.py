"""What a job may ask of MLflow, and what becomes of it; decided without any server."""

import json
from typing import Any

import pytest

from allranks.server.mlflow.rules import (
    Job,
    Request,
    Verdict,
    headers,
    judge,
    metrics,
    names_place,
    translated,
    under,
)

OURS, RUN, OTHER = "a" * 32, "b" * 32, "c" * 32
JOB = Job("j", OURS, RUN, "7", "mine & yours")
API = "/api/2.0/mlflow/"


def asked(call: str, body: Any = None, method: str = "POST", query: str = "") -> Verdict:
    data = None if body is None else json.dumps(body).encode()
    return judge(translated(Request(method, API + call, query), JOB, data), JOB)


def test_the_id_that_ranks_know_becomes_mlflows() -> None:
    assert asked("runs/get", None, "GET", f"run_id={OURS}").request.query == f"run_id={RUN}"
    found = asked("runs/log-metric", {"run_id": OURS, "key": "k"})
    assert found.request.body["run_id"] == RUN
    assert found.runs == {RUN}
    file = Request("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7/{OURS}/x")
    assert judge(translated(file, JOB, None), JOB).runs == {RUN}
    with pytest.raises(ValueError, match="Expecting"):
        translated(file, JOB, b"{")


@pytest.mark.parametrize("name", ["run_id", "run_uuid", "runId", "runUuid"])
@pytest.mark.parametrize("call", ["log-batch", "set-tag", "update", "log-model", "delete"])
def test_a_run_is_seen_by_whatever_name_it_goes(call: str, name: str) -> None:
    assert asked(f"runs/{call}", {name: OTHER}).runs == {OTHER}


def test_any_experiment_is_the_jobs() -> None:
    found = asked("experiments/get-by-name", None, "GET", "experiment_name=other")
    assert found.request.query == "experiment_name=mine+%26+yours"
    assert asked("experiments/create", {"name": "x"}).answer == {"experiment_id": "7"}
    made = asked("runs/create", {"experiment_id": "1", "experimentId": "2", "tags": []})
    assert made.request.body["experiment_id"] == "7"
    assert "experimentId" not in made.request.body


def test_a_run_that_is_made_is_marked_as_the_jobs() -> None:
    made = asked("runs/create", {})
    assert made.makes_run
    assert {"key": "allranks.run", "value": OURS} in made.request.body["tags"]
    below = under(made.request, JOB)
    assert {"key": "mlflow.parentRunId", "value": RUN} in below.body["tags"]
    nested = asked("runs/create", {"tags": [{"key": "mlflow.parentRunId", "value": OTHER}]})
    assert not nested.makes_run
    assert nested.runs == {OTHER}


def test_no_process_ends_the_jobs_run() -> None:
    body = {"run_id": OURS, "status": "FINISHED", "end_time": 1, "run_name": "n"}
    assert asked("runs/update", body).request.body == {"run_id": RUN, "run_name": "n"}
    assert asked("runs/update", {**body, "run_id": OTHER}).request.body["status"] == "FINISHED"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", API + "experiments/delete"),
        ("POST", API + "experiments/update"),
        ("POST", API + "users/create"),
        ("POST", "/ajax-api/2.0/mlflow/experiments/delete"),
        ("DELETE", API + "registered-models/delete"),
        ("DELETE", API + "model-versions/delete"),
        ("POST", "/api/2.0/mlflow//experiments/delete"),
        ("POST", "/graphql"),
        ("POST", "/gateway/x/invocations"),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/8/x/artifacts/f"),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7/{RUN}/../../8/x/f"),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7/{RUN}/%2e%2e/%2e%2e/8/x/f"),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/8"),
        ("POST", "/api/2.0/mlflow-artifacts/mpu/create/8/x/f"),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/7/models"),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/7/traces/"),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7/{RUN}/%252e%252e/{OTHER}/x"),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7/{RUN}/..%5c{OTHER}/x"),
        ("GET", "/api/2.0/mlflow-artifacts/artifacts/7/%2e%2e/%2e%2e/mlflow.db"),
        ("GET", "/ajax-api/2.0/mlflow/gateway-proxy"),
        ("GET", "/api/3.0/mlflow/gateway/secrets/list"),
        ("GET", API + "webhooks"),
        ("GET", "/graphql"),
        ("GET", "/docs"),
        ("POST", "/ajax-api/2.0/mlflow/runs/create-promptlab-run"),
        ("POST", API + "registered-models/rename"),
        ("POST", "/api/3.0/mlflow/datasets/create"),
        # MLflow reads what is written so, and sees another call or another's folder in it.
        ("POST", API + "runs/%64elete"),
        ("POST", API + "runs/log%2Dmetric"),
        ("POST", API + "traces/%64elete-traces"),
        ("PUT", "/api/2.0/mlflow%2Dartifacts/artifacts/8/x/artifacts/v1/traces"),
        ("DELETE", "/api/2.0/mlflow-artifacts%2Fartifacts/8/x/artifacts/v1/traces"),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7%2F{OTHER}/../8/x"),
    ],
)
def test_what_a_job_may_not(method: str, path: str) -> None:
    assert judge(Request(method, path, "", {}), JOB).refused


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", API + "runs/get"),
        ("POST", API + "runs/search"),
        ("POST", API + "experiments/search"),
        ("POST", API + "logged-models"),
        ("POST", API + "registered-models/create"),
        ("POST", API + "model-versions/create"),
        ("GET", "/api/2.0/mlflow-artifacts/artifacts/8/x/artifacts/f"),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/7/models/m-1/artifacts/f"),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/7/{RUN}/artifacts/a%20b%25.txt"),
        ("POST", "/v1/traces"),
        ("GET", "/server-info"),
    ],
)
def test_what_a_job_may(method: str, path: str) -> None:
    assert not judge(Request(method, path, "", {}), JOB).refused


def test_a_job_does_not_delete_its_own_run_but_what_it_made() -> None:
    assert asked("runs/delete", {"run_id": OURS}).refused
    assert not asked("runs/delete", {"run_id": OTHER}).refused


def test_a_logged_model_and_a_trace_are_looked_up() -> None:
    files = "/api/2.0/mlflow-artifacts/artifacts/7/"
    assert judge(Request("DELETE", files + "models/m-1"), JOB).models == {"m-1"}
    assert judge(Request("PUT", files + "traces/tr-1/artifacts/x"), JOB).traces == {"tr-1"}
    assert asked("logged-models/m-1/tags", {}, "PATCH").models == {"m-1"}
    assert asked("traces/tr-1/tags", {}, "PATCH").traces == {"tr-1"}
    linked = asked("traces/link-to-run", {"trace_ids": ["tr-1", "tr-2"], "run_id": OURS})
    assert (linked.runs, linked.traces) == ({RUN}, {"tr-1", "tr-2"})


def test_what_is_made_is_of_the_jobs_experiment_and_marked() -> None:
    made = asked("logged-models", {"experiment_id": "1", "name": "n"}).request.body
    assert made["experiment_id"] == "7"
    of_job = {"key": "allranks.job", "value": "j"}
    assert made["tags"] == [{"key": "allranks.run", "value": OURS}, of_job]
    body = {"trace": {"trace_info": {"trace_id": "tr-1", "trace_metadata": {"a": "b"}}}}
    old = asked("traces", {}).request.body
    assert old["request_metadata"] == [{"key": "allranks.run", "value": OURS}]
    found = judge(Request("POST", "/api/3.0/mlflow/traces", "", body), JOB)
    info = found.request.body["trace"]["trace_info"]
    assert info["trace_location"]["mlflow_experiment"] == {"experiment_id": "7"}
    assert info["trace_metadata"] == {"a": "b", "allranks.run": OURS}
    assert found.traces == {"tr-1"}


def test_no_job_passes_what_is_its_own_off_as_anothers() -> None:
    """By these tags this server finds the run, model and trace of a job."""
    forged = [{"key": key, "value": OTHER} for key in ("allranks.run", "allranks.main")]
    assert asked("logged-models/m-1/tags", {"tags": forged}, "PATCH").refused
    assert asked("runs/log-batch", {"run_id": OURS, "tags": forged}).refused
    assert asked("runs/set-tag", {"run_id": OURS, **forged[0]}).refused
    assert asked("runs/delete-tag", {"run_id": OURS, "key": "allranks.job"}).refused
    assert asked("traces/tr-1", {"request_metadata": forged}, "PATCH").refused
    own = {"key": "allranks.run", "value": OURS}
    for call in ("runs/create", "logged-models"):
        made = asked(call, {"tags": [*forged, {"key": "a", "value": "b"}]}).request.body["tags"]
        assert made == [{"key": "a", "value": "b"}, own, {"key": "allranks.job", "value": "j"}]
    assert asked("traces", {"request_metadata": forged}).request.body["request_metadata"] == [own]


FOREIGN = ("/etc", "..", "prompt-template/..", "file:///etc", "s3://b/k", "mlflow-artifacts://h/x")


def test_only_what_runs_logged_becomes_a_version_of_a_model() -> None:
    for place in ("", "mlflow-artifacts:/7/x", "runs:/r/m", "models:/m-1", "prompt-template"):
        assert not asked("model-versions/create", {"name": "n", "source": place}).refused
    for place in FOREIGN:
        assert asked("model-versions/create", {"name": "n", "source": place}).refused
    assert names_place("/ajax-api/2.0/mlflow/%65xperiments/create/")


@pytest.mark.parametrize("depth", [100, 10_000, 3_000_000])
def test_a_body_of_deep_lists_is_refused(depth: int) -> None:
    # Python 3.14 reads the second, 3.11 does not.
    with pytest.raises(ValueError, match="too deep"):
        translated(Request("POST", API + "runs/log-batch"), JOB, b"[" * depth + b"]" * depth)


def test_spans_are_of_the_jobs_experiment() -> None:
    sent = [(b"X-Mlflow-Experiment-Id", b"1"), (b"x-mlflow-workspace", b"w"), (b"a", b"b")]
    assert headers(sent, JOB) == [(b"a", b"b"), (b"x-mlflow-experiment-id", b"7")]


def test_metrics_are_found_in_both_calls_that_tell_them() -> None:
    one = {"run_id": RUN, "key": "k", "value": 1, "timestamp": 2}
    assert metrics(Request("POST", API + "runs/log-metric", "", one)) == [one]
    assert metrics(Request("POST", API + "runs/log-batch", "", {"metrics": [one]})) == [one]
    assert metrics(Request("POST", API + "runs/log-parameter", "", one)) == []
