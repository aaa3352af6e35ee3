"""What a job's own processes may ask of MLflow, and what becomes of it. Pure.

Whatever experiment a script names, its runs are its job's: `set_experiment` finds the job's own, so
that the run of MLFLOW_RUN_ID fits it. Jobs read what they like and write what is theirs. A job's
run is over when the job is, not when one of its processes says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from allranks.plan.mlflow import JOB_TAG, PARENT_TAG, RUN_TAG

_CALL = re.compile(r"/(?:ajax-)?api/[0-9.]+/mlflow/(.*)")
_FILES = re.compile(r"/(?:ajax-)?api/[0-9.]+/mlflow-artifacts/(?:artifacts|mpu/[^/]+)/(.*)")
_TRACES = "/v1/traces"
# Of calls that change something, those about these.
_OPEN = ("datasets", "logged-models", "metrics", "model-versions", "registered-models", "traces")
# Of calls about experiments, those that only ask.
_ASKS = ("experiments/search", "experiments/get")
# A run by any of the names that MLflow takes for it.
_RUN = ("run_id", "run_uuid", "runId", "runUuid", "source_run_id", "sourceRunId")
_EXPERIMENT = ("experiment_id", "experimentId")


class Job(NamedTuple):
    """Its name, its run's id as its ranks know it and as MLflow does, and its experiment."""

    name: str
    ours: str
    run: str
    experiment_id: str
    experiment: str


class Request(NamedTuple):
    """``path`` is MLflow's own, as it was sent; ``body`` is JSON, None where it was not read."""

    method: str
    path: str
    query: str = ""
    body: Any = None


class Verdict(NamedTuple):
    """``request`` is what to ask MLflow, provided that all ``runs`` are the job's; ``answer``: what
    to answer instead of asking; ``refused``: why not. ``makes_run``: it wants a run that is under
    no other, the job's own if nobody has that yet."""

    request: Request
    runs: frozenset[str] = frozenset()
    answer: Mapping[str, Any] | None = None
    refused: str = ""
    makes_run: bool = False


def is_file(path: str) -> bool:
    """Whether it is about the content of an artifact, which may be large and is not looked at."""
    return bool(_FILES.fullmatch(path)) or path == _TRACES


def only_asks(request: Request) -> bool:
    """Whether nothing is changed by it."""
    call = _CALL.fullmatch(request.path)
    last = call[1].strip("/").rpartition("/")[2] if call else ""
    asks = last == "search" or last.startswith("get-") or request.path.endswith("/graphql")
    return request.method in ("GET", "HEAD") or (request.method == "POST" and asks)


def judge(request: Request, job: Job) -> Verdict:
    """``request`` has MLflow's id of the job's run in the place of ours: `translated`."""
    reads = request.method in ("GET", "HEAD")
    files = _FILES.fullmatch(request.path)
    if files is not None and not reads:
        return _written(request, job, unquote(files[1]))
    if "%" in request.path and not reads:
        # MLflow reads what that stands for, and may find another call there than we have judged.
        return Verdict(request, refused="the name of a call is written as it is, without %")
    call = _CALL.fullmatch(request.path)
    if call is None:
        may = reads or request.path == _TRACES
        return Verdict(request, refused="" if may else "a job may not do that")
    return _called(request, job, call[1].strip("/"))


def metrics(request: Request) -> list[dict[str, Any]]:
    """What is told by that request: each with key, value, step and timestamp (ms)."""
    call, body = _CALL.fullmatch(request.path), request.body
    if call is None or request.method != "POST" or not isinstance(body, dict):
        return []
    if call[1] == "runs/log-metric":
        return [body]
    return list(body.get("metrics") or ()) if call[1] == "runs/log-batch" else []


def uses_run(request: Request, job: Job) -> bool:
    """Whether it writes to the job's own run, which is then somebody's."""
    return request.method != "GET" and job.run in _values(request.body, _RUN)


def under(request: Request, job: Job) -> Request:
    """The same, for a run below the job's."""
    tags = [*(request.body.get("tags") or ()), {"key": PARENT_TAG, "value": job.run}]
    return request._replace(body={**request.body, "tags": tags})


def translated(request: Request, job: Job, data: bytes | None) -> Request:
    """With MLflow's id of the job's run in the place of ours, and with ``data`` as its body. Raises
    ValueError when that is not JSON."""
    path, query = (text.replace(job.ours, job.run) for text in (request.path, request.query))
    if data is None:
        return Request(request.method, path, query)
    body = json.loads(data.replace(job.ours.encode(), job.run.encode()) or b"{}")
    return Request(request.method, path, query, body)


def _called(request: Request, job: Job, call: str) -> Verdict:
    if call == "experiments/get-by-name":
        asked = {**dict(parse_qsl(request.query)), "experiment_name": job.experiment}
        return Verdict(request._replace(query=urlencode(asked)))
    if request.method in ("GET", "HEAD"):
        return Verdict(request)
    if call == "experiments/create":
        return Verdict(request, answer={"experiment_id": job.experiment_id})
    if not isinstance(request.body, dict):
        return Verdict(request, refused="this cannot be read")
    if call == "runs/create":
        return _new_run(request, job)
    topic, last = call.split("/", 1)[0], call.rsplit("/", 1)[-1]
    runs = frozenset(_values(request.body, _RUN)) - {""}
    if call == "runs/update" and job.run in runs:
        body = {k: v for k, v in request.body.items() if k not in ("status", "end_time", "endTime")}
        return Verdict(request._replace(body=body), runs)
    if topic == "runs" and last in ("search", "get-history-bulk"):
        return Verdict(request)
    if topic == "runs":
        refused = "its job's own run is not a job's to delete" if call == "runs/delete" else ""
        return Verdict(request, runs, refused=refused if job.run in runs else "")
    if call == "experiments/set-experiment-tag":
        mine = set(_values(request.body, _EXPERIMENT)) == {job.experiment_id}
        return Verdict(request, refused="" if mine else "that experiment is another's")
    deletes = request.method == "DELETE" or last.startswith("delete")
    may = call in _ASKS or (topic in _OPEN and (not deletes or last == "delete-tag"))
    return Verdict(request, runs, refused="" if may else f"a job may not do that: {call}")


def _new_run(request: Request, job: Job) -> Verdict:
    tags = [each for each in request.body.get("tags") or () if isinstance(each, dict)]
    tags += [{"key": RUN_TAG, "value": job.ours}, {"key": JOB_TAG, "value": job.name}]
    body = {k: v for k, v in request.body.items() if k not in _EXPERIMENT}
    body |= {"experiment_id": job.experiment_id, "tags": tags}
    parents = {str(each.get("value")) for each in tags if each.get("key") == PARENT_TAG}
    return Verdict(request._replace(body=body), frozenset(parents), makes_run=not parents)


def _written(request: Request, job: Job, path: str) -> Verdict:
    experiment, _, rest = path.partition("/")
    run = rest.partition("/")[0]
    if experiment != job.experiment_id or not run or ".." in path.split("/"):
        return Verdict(request, refused="a job writes artifacts of its own runs only")
    return Verdict(request, frozenset() if run in ("models", "traces") else frozenset({run}))


def _values(body: Any, names: tuple[str, ...]) -> list[str]:
    return [str(body[name]) for name in names if name in body] if isinstance(body, dict) else []
