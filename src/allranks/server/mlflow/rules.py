"""Which MLflow requests a job's processes may make, and how they are rewritten. Pure functions.

Whatever experiment a script names, it gets the job's own, so that it matches the run of
MLFLOW_RUN_ID. Calls are allowed by name, and by the owner of the run, logged model or trace that
they change; unlisted calls are refused. Jobs may read everything and change only what is theirs.
Processes cannot end their job's run: it ends with the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from allranks.core.metrics.mlflow_run import JOB_TAG, PARENT_TAG, RUN_TAG
from allranks.core.text import nests_deeper

_CALL = re.compile(r"/(?:ajax-)?api/[0-9.]+/mlflow/(.*)")
_FILES = re.compile(r"/(?:ajax-)?api/[0-9.]+/mlflow-artifacts/artifacts/(.*)")
_TRACES = "/v1/traces"
# Paths about the server, and of single artifacts.
_PAGES: tuple[str, ...] = (
    "/",
    "/health",
    "/version",
    "/server-info",
    "/api/3.0/mlflow/server-info",
)
_PAGES += ("/get-artifact", "/model-versions/get-artifact")
_PAGES += ("/api/2.0/mlflow-artifacts/artifacts", "/ajax-api/2.0/mlflow-artifacts/artifacts")
# Read-only calls, allowed for data of any job.
_READS = re.compile(
    r"experiments/(?:get|get-by-name|search)|runs/(?:get|search)|artifacts/list"
    r"|metrics/get-history(?:-bulk(?:-interval)?)?|runs/get-history-bulk"
    r"|logged-models/(?:search|[^/]+|[^/]+/artifacts/(?:directories|files))"
    r"|(?:registered-models|model-versions)/(?:get|search|get-latest-versions|get-download-uri)"
    r"|registered-models/alias|server-info|get-trace-artifact"
    r"|traces|traces/(?:get|search|batchGet|batchGetInfos|metrics|calculate-filter-correlation)"
    r"|traces/[^/]+(?:/info|/assessments/[^/]+)?"
    r"|datasets/(?:search|[^/]+|[^/]+/(?:records|experiment-ids))"
)
# Read-only calls that use POST.
_POST_READS = re.compile(
    r"(?:experiments|runs|logged-models|traces|datasets)/search|runs/get-history-bulk"
    r"|registered-models/get-latest-versions"
    r"|traces/(?:batchGetInfos|metrics|calculate-filter-correlation)"
)
# Calls that change the run in their body.
_RUNS: tuple[str, ...] = (
    "delete",
    "delete-tag",
    "log-batch",
    "log-inputs",
    "log-metric",
    "log-model",
)
_RUNS += ("log-parameter", "outputs", "restore", "set-tag", "update")
# Calls that create and tag models in the registry, which all jobs share.
_REGISTRY = re.compile(
    r"POST (?:registered-models/(?:create|set-tag|alias)"
    r"|model-versions/(?:create|set-tag|transition-stage))"
    r"|PATCH (?:registered-models|model-versions)/update"
    r"|DELETE (?:registered-models|model-versions)/delete-tag"
)
_MODEL = re.compile(r"PATCH logged-models/([^/]+)(?:/tags)?|POST logged-models/([^/]+)/params")
_MODEL_TAG = re.compile(r"DELETE logged-models/([^/]+)/tags/[^/]+")
_TRACE = re.compile(
    r"PATCH traces/([^/]+)(?:/tags|/assessments/[^/]+)?|DELETE traces/([^/]+)/tags"
    r"|POST traces/([^/]+)/assessments|DELETE traces/([^/]+)/assessments/[^/]+"
)
# The keys by which MLflow accepts a run.
_RUN = ("run_id", "run_uuid", "runId", "runUuid", "source_run_id", "sourceRunId")
_EXPERIMENT = ("experiment_id", "experimentId")
_MODEL_ID, _TRACE_ID = ("model_id", "modelId"), ("trace_id", "traceId", "request_id", "requestId")
# Calls that say where MLflow's server keeps or finds files, with the names of those keys; and the
# places that are no files or hosts which it would reach with its own rights.
_PLACES = {
    "experiments/create": ("artifact_location", "artifactLocation"),
    "model-versions/create": ("source",),
}
_KEPT = re.compile(r"(?:mlflow-artifacts|runs|models):/(?!/).*|prompt-template", re.DOTALL)
# How the tags begin by which this server knows runs, models and traces.
_MARK = "allranks."
# Headers that select an experiment, run or workspace.
_EXPERIMENT_HEADER = b"x-mlflow-experiment-id"
_HEADERS = (_EXPERIMENT_HEADER, b"x-mlflow-run-id", b"x-mlflow-workspace")


class Job(NamedTuple):
    """``ours`` is the run id that the job's ranks know, ``run`` MLflow's id of the same run."""

    name: str
    ours: str
    run: str
    experiment_id: str
    experiment: str


class Request(NamedTuple):
    """``path`` is the raw path below /mlflow; ``body`` is parsed JSON, None if it was not read."""

    method: str
    path: str
    query: str = ""
    body: Any = None


class Verdict(NamedTuple):
    """``request`` is what to send to MLflow, provided that all ``runs``, ``models`` (logged ones)
    and existing ``traces`` belong to the job. ``answer``: what to answer without MLflow;
    ``refused``: why the request is refused. ``makes_run``: it creates a top-level run, which gets
    the job's own run if that is unused."""

    request: Request
    runs: frozenset[str] = frozenset()
    answer: Mapping[str, Any] | None = None
    refused: str = ""
    makes_run: bool = False
    models: frozenset[str] = frozenset()
    traces: frozenset[str] = frozenset()


def is_file(path: str) -> bool:
    """Whether the body is the content of an artifact or trace, which is not parsed."""
    return bool(_FILES.fullmatch(path)) or path == _TRACES


def is_read_only(request: Request) -> bool:
    """Whether the request is read-only."""
    call = _CALL.fullmatch(request.path)
    last = call[1].strip("/").rpartition("/")[2] if call else ""
    asks = last == "search" or last.startswith("get-") or request.path.endswith("/graphql")
    return request.method in ("GET", "HEAD") or (request.method == "POST" and asks)


def judge(request: Request, job: Job) -> Verdict:
    """Decide on a request of a job, after `translated`."""
    reads = request.method in ("GET", "HEAD")
    if (files := _FILES.fullmatch(request.path)) is not None:
        path = _steps(files[1])
        if path is None:
            return Verdict(request, refused="the path of an artifact must be below its run")
        return Verdict(request) if reads else _written(request, job, path)
    if "%" in request.path or "//" in request.path:
        # MLflow decodes the path and might see another call than was judged here.
        return Verdict(request, refused="write the path of a call without % and //")
    call = _CALL.fullmatch(request.path)
    if call is None:
        pages = request.path in _PAGES or request.path.startswith("/static-files/")
        may = pages if reads else (request.method, request.path) == ("POST", _TRACES)
        return Verdict(request, refused="" if may else "not allowed for jobs")
    return _called(request, job, call[1].strip("/"))


def names_place(path: str) -> bool:
    """Whether the body of a call to this path may say where MLflow's server has files."""
    call = _CALL.fullmatch(unquote(path))
    return call is not None and call[1].strip("/") in _PLACES


def is_foreign_place(body: Mapping[str, Any]) -> bool:
    """Whether the body names files elsewhere than MLflow's server keeps those of runs."""
    places = _values(body, tuple(chain(*_PLACES.values())))
    return any(place and not _KEPT.fullmatch(place) for place in places)


def metrics(request: Request) -> list[dict[str, Any]]:
    """The metrics that a request logs: each with key, value, step and timestamp (ms)."""
    return _logged(request, ("runs/log-metric",), "metrics")


def parameters(request: Request) -> list[dict[str, Any]]:
    """The parameters that a request logs: each with key and value."""
    return _logged(request, ("runs/log-parameter", "runs/log-param"), "params")


def _logged(request: Request, calls: Collection[str], key: str) -> list[dict[str, Any]]:
    """What one of the ``calls`` logs alone, or a batch in its ``key``."""
    call, body = _CALL.fullmatch(request.path), request.body
    if call is None or request.method != "POST" or not isinstance(body, dict):
        return []
    if call[1] in calls:
        return [body]
    return list(body.get(key) or ()) if call[1] == "runs/log-batch" else []


def registers(request: Request) -> bool:
    """Whether the request creates a version of a model in the registry."""
    call = _CALL.fullmatch(request.path)
    return request.method == "POST" and call is not None and call[1] == "model-versions/create"


def uses_run(request: Request, job: Job) -> bool:
    """Whether the request writes to the job's own run, which is then used."""
    return request.method != "GET" and job.run in _values(request.body, _RUN)


def under(request: Request, job: Job) -> Request:
    """The request to create a run, with the job's run as its parent."""
    tags = [*(request.body.get("tags") or ()), {"key": PARENT_TAG, "value": job.run}]
    return request._replace(body={**request.body, "tags": tags})


def translated(request: Request, job: Job, data: bytes | None) -> Request:
    """The request with our id of the job's run replaced by MLflow's, and ``data`` as its body.
    Raises ValueError for invalid JSON."""
    path, query = (text.replace(job.ours, job.run) for text in (request.path, request.query))
    if data is None:
        return Request(request.method, path, query)
    return Request(
        request.method, path, query, parse(data.replace(job.ours.encode(), job.run.encode()))
    )


def parse(data: bytes) -> Any:
    """The JSON value of a body. Raises ValueError."""
    try:
        value = json.loads(data or b"{}")
    except RecursionError:
        raise ValueError("it nests too deep") from None
    if nests_deeper(value):
        raise ValueError("it nests too deep")
    return value


def headers(sent: Sequence[tuple[bytes, bytes]], job: Job) -> list[tuple[bytes, bytes]]:
    """The headers to send to MLflow, which assign spans to the job's experiment."""
    kept = [each for each in sent if each[0].lower() not in _HEADERS]
    return [*kept, (_EXPERIMENT_HEADER, job.experiment_id.encode())]


def _called(request: Request, job: Job, call: str) -> Verdict:
    if call == "experiments/get-by-name":
        query = {**dict(parse_qsl(request.query)), "experiment_name": job.experiment}
        return Verdict(request._replace(query=urlencode(query)))
    refused = Verdict(request, refused=f"not allowed for jobs: {call}")
    if request.method in ("GET", "HEAD"):
        return Verdict(request) if _READS.fullmatch(call) else refused
    if call == "experiments/create" and request.method == "POST":
        return Verdict(request, answer={"experiment_id": job.experiment_id})
    if not isinstance(request.body, dict):
        return Verdict(request, refused="the body must be a JSON object")
    if request.method == "POST" and _POST_READS.fullmatch(call):
        return Verdict(request)
    topic, _, rest = call.partition("/")
    makes = call in ("logged-models", "runs/create", "traces")  # marked anew below
    if not makes and _marks(request.body):
        return Verdict(request, refused=f"the tags {_MARK}… are this server's")
    if topic == "runs" and request.method == "POST":
        return _run_changed(request, job, rest, refused)
    line = f"{request.method} {call}"
    if line == "POST experiments/set-experiment-tag":
        mine = set(_values(request.body, _EXPERIMENT)) == {job.experiment_id}
        return Verdict(request, refused="" if mine else "the experiment is not the job's")
    if names_place(request.path) and is_foreign_place(request.body):
        return Verdict(request, refused="a model must be of a run, or a logged one")
    if _REGISTRY.fullmatch(line):
        return Verdict(request, _named(request, _RUN), models=_named(request, _MODEL_ID))
    if topic == "logged-models":
        return _model_changed(request, job, line, refused)
    return _trace_changed(request, job, line, refused) if topic == "traces" else refused


def _run_changed(request: Request, job: Job, what: str, refused: Verdict) -> Verdict:
    if what == "create":
        return _new_run(request, job)
    runs = _named(request, _RUN)
    if what not in _RUNS or not runs:
        return refused
    if what == "update" and job.run in runs:
        body = {k: v for k, v in request.body.items() if k not in ("status", "end_time", "endTime")}
        return Verdict(request._replace(body=body), runs)
    own = what == "delete" and job.run in runs
    return Verdict(request, runs, refused="a job cannot delete its own run" * own)


def _new_run(request: Request, job: Job) -> Verdict:
    tags = _unmarked(request.body.get("tags"))
    tags += [{"key": RUN_TAG, "value": job.ours}, {"key": JOB_TAG, "value": job.name}]
    body = {k: v for k, v in request.body.items() if k not in _EXPERIMENT}
    body |= {"experiment_id": job.experiment_id, "tags": tags}
    parents = {str(tag.get("value")) for tag in tags if tag.get("key") == PARENT_TAG}
    return Verdict(request._replace(body=body), frozenset(parents), makes_run=not parents)


def _model_changed(request: Request, job: Job, line: str, refused: Verdict) -> Verdict:
    """A logged model belongs to the job of its run or, without a run, of its tag."""
    if line == "POST logged-models":
        tags = _unmarked(request.body.get("tags"))
        tags += [{"key": RUN_TAG, "value": job.ours}, {"key": JOB_TAG, "value": job.name}]
        body = {k: v for k, v in request.body.items() if k not in _EXPERIMENT}
        body |= {"experiment_id": job.experiment_id, "tags": tags}
        return Verdict(request._replace(body=body), _named(request, _RUN))
    match = _MODEL.fullmatch(line) or _MODEL_TAG.fullmatch(line)
    if match is None:
        return refused
    models = {group for group in match.groups() if group} | _named(request, _MODEL_ID)
    return Verdict(request, models=frozenset(models))


def _trace_changed(request: Request, job: Job, line: str, refused: Verdict) -> Verdict:
    """A trace belongs to the job that its metadata names since its start."""
    body, one = request.body, _named(request, _TRACE_ID)
    if line == "POST traces":
        return _new_trace(request, job, refused)
    if line in ("POST traces/link-to-run", "POST traces/link-prompts"):
        lists = [body.get(name) for name in ("trace_ids", "traceIds")]
        several = [each for some in lists if isinstance(some, list) for each in some]
        return Verdict(request, _named(request, _RUN), traces=one | frozenset(map(str, several)))
    match = _TRACE.fullmatch(line)
    if match is None:
        return refused
    return Verdict(request, traces=one | frozenset(group for group in match.groups() if group))


def _new_trace(request: Request, job: Job, refused: Verdict) -> Verdict:
    body = request.body
    if request.path.endswith("/2.0/mlflow/traces"):
        metadata = _unmarked(body.get("request_metadata"))
        metadata += [{"key": RUN_TAG, "value": job.ours}]
        made = {**_without(body, (*_EXPERIMENT, "requestMetadata")), "request_metadata": metadata}
        return Verdict(request._replace(body={**made, "experiment_id": job.experiment_id}))
    trace = body.get("trace")
    info = trace.get("trace_info") if isinstance(trace, dict) else None
    if not isinstance(info, dict) or not isinstance(info.get("trace_metadata", {}), dict):
        return refused
    info = _without(info, ("traceLocation", "traceMetadata")) | {
        "trace_location": {
            "type": "MLFLOW_EXPERIMENT",
            "mlflow_experiment": {"experiment_id": job.experiment_id},
        },
        "trace_metadata": {**info.get("trace_metadata", {}), RUN_TAG: job.ours},
    }
    traces = frozenset(_values(info, _TRACE_ID))
    return Verdict(request._replace(body={"trace": {"trace_info": info}}), traces=traces)


def _marks(body: Mapping[str, Any]) -> bool:
    """Whether the call would set or remove tags that mark an owner."""
    lists = (body.get(name) for name in ("tags", "request_metadata", "requestMetadata"))
    entries = [body, *(entry for several in lists for entry in _entries(several))]
    return any(str(entry.get("key")).startswith(_MARK) for entry in entries)


def _unmarked(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in _entries(value) if not str(entry.get("key")).startswith(_MARK)]


def _written(request: Request, job: Job, path: list[str]) -> Verdict:
    """``path`` is EXPERIMENT/RUN/…, EXPERIMENT/models/MODEL/…, or EXPERIMENT/traces/TRACE/…."""
    kind, *rest = path[1:]
    which = rest[0] if rest and kind in ("models", "traces") else ""
    if path[0] != job.experiment_id or request.method not in ("PUT", "DELETE"):
        return Verdict(request, refused="a job may write artifacts of its own runs only")
    if kind in ("models", "traces"):
        if not which:
            return Verdict(request, refused="a job may write artifacts of its own runs only")
        one = frozenset({which})
        return Verdict(request, models=one) if kind == "models" else Verdict(request, traces=one)
    return Verdict(request, frozenset({kind}))


def _steps(path: str) -> list[str] | None:
    """The parts of an artifact's path; None if it may leave its folder in any encoding."""
    decoded = unquote(path)
    steps, deeper = decoded.split("/"), decoded
    for _ in range(5):
        if "\0" in deeper or "\\" in deeper or {"..", "."} & {*deeper.split("/")}:
            return None
        deeper = unquote(deeper)
    whole = len(steps) > 1 and all(steps[:2]) and "%" not in "".join(steps[:3])
    return steps if whole and unquote(deeper) == deeper else None


def _entries(value: Any) -> list[dict[str, Any]]:
    """The entries ({"key", "value"}) of a list in MLflow's bodies."""
    several = value if isinstance(value, list) else []
    return [each for each in several if isinstance(each, dict)]


def _without(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: each for key, each in body.items() if key not in names}


def _named(request: Request, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_values(request.body, names)) - {""}


def _values(body: Any, names: tuple[str, ...]) -> list[str]:
    return [str(body[name]) for name in names if name in body] if isinstance(body, dict) else []
