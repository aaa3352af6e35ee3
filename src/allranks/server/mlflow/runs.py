"""The MLflow run of each job: created at first use, and found again by its tag.

MLflow chooses run ids, but ranks need theirs before MLflow runs. So ranks get an id of ours, which
is stored in a tag of the run, and the proxy translates between the two.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from allranks.core.metrics import mlflow_run
from allranks.errors import AllranksError, NotFound, ServerError
from allranks.server.mlflow.child import Child
from allranks.store.jobs.job_rows import JobRow
from allranks.store.mlflow_runs import Mirrored, MlflowRuns

API, _API_3 = "/api/2.0/mlflow", "/api/3.0/mlflow"
# Ids of logged models and traces.
_ID = re.compile(r"[\w-]{1,64}")
# The most entries of one `log-batch`: metrics, and parameters or tags.
METRICS, PAIRS = 1000, 100


class Denied(AllranksError):
    """MLflow refused the request."""

    http = 502


class Gone(Denied):
    """MLflow does not have the requested object."""


class Made(NamedTuple):
    """The job that made a run, and our id of the job's own run."""

    job: str
    ours: str


class Runs:
    """The MLflow runs of a home's jobs. Thread-safe. Calls block until MLflow answers, and raise
    OSError without an answer, Denied for a refusal."""

    def __init__(self, child: Child, kept: MlflowRuns, find: Callable[[str], JobRow]) -> None:
        self._child, self._kept, self._find = child, kept, find
        self._lock = threading.Lock()
        # Runs that a process of their job already uses.
        self._taken: set[str] = set()

    def of(self, row: JobRow) -> Mirrored:
        """The job's run, created if missing."""
        with self._lock:
            return self._of(row)

    def call(self, path: str, data: Mapping[str, Any]) -> Any:
        return self._answer("POST", path, json.dumps(data).encode())

    def get(self, path: str, **query: str) -> Any:
        return self._answer("GET", f"{path}?{urlencode(query)}")

    def job_of(self, run: str, model: str) -> Made | None:
        """The job whose process created the run or, without one, the logged model; None for those
        of others."""
        try:
            if run:
                tagged = self.get("/runs/get", run_id=run)["run"]["data"]
            elif _ID.fullmatch(model):
                tagged = self.get(f"/logged-models/{model}")["model"]["info"]
            else:
                return None
        except Gone:
            return None
        tags = {tag["key"]: tag["value"] for tag in tagged.get("tags", ())}
        job, ours = tags.get(mlflow_run.JOB_TAG), tags.get(mlflow_run.RUN_TAG)
        return Made(job, ours) if job and ours else None

    def name_of(self, run: str, row: JobRow) -> str | None:
        """The name of a run that the job created; None for a run of others."""
        try:
            answer = self.get("/runs/get", run_id=run)["run"]
        except Gone:
            return None
        tags = {tag["key"]: tag["value"] for tag in answer["data"].get("tags", ())}
        if tags.get(mlflow_run.RUN_TAG) != ours(row):
            return None
        name = str(answer["info"]["run_name"])
        alone = run == self._first_named(name, answer["info"]["experiment_id"], row)
        return name if alone else f"{name}_{run[:6]}"

    def owns_model(self, model: str, row: JobRow) -> bool:
        """Whether the job created the logged model, by the model's tag or its run."""
        if not _ID.fullmatch(model):
            return False
        try:
            info = self.get(f"/logged-models/{model}")["model"]["info"]
        except Gone:
            return False
        if {"key": mlflow_run.RUN_TAG, "value": ours(row)} in info.get("tags", ()):
            return True
        source = str(info.get("source_run_id") or "")
        if source == self.of(row).run_id:
            return True
        return bool(source) and self.name_of(source, row) is not None

    def owns_trace(self, trace: str, row: JobRow) -> bool:
        """Whether the job started the trace, or it does not exist yet."""
        if not _ID.fullmatch(trace):
            return False
        try:
            info = self._answer("GET", f"/traces/{trace}", api=_API_3)["trace"]["trace_info"]
        except Gone:
            return True
        return bool(info.get("trace_metadata", {}).get(mlflow_run.RUN_TAG) == ours(row))

    def take(self, run: str) -> bool:
        """Mark the run as used by a process of its job; returns whether it was unused."""
        with self._lock:
            if run in self._taken:
                return False
            tags = self.get("/runs/get", run_id=run)["run"]["data"].get("tags", ())
            had = any(tag["key"] == _TAKEN for tag in tags)
            if not had:
                self.call("/runs/set-tag", {"run_id": run, "key": _TAKEN, "value": "true"})
            self._taken.add(run)
            return not had

    def _first_named(self, name: str, experiment: str, row: JobRow) -> str | None:
        """The first run of that name that the job created; several may share it (folds)."""
        if not name.isprintable() or set(name) & set("'\"\\`%_"):
            return None  # a filter cannot express it
        search = {
            "experiment_ids": [experiment],
            "filter": (
                f"tags.`{mlflow_run.RUN_TAG}` = '{ours(row)}' AND attributes.run_name = '{name}'"
            ),
            "run_view_type": "ALL",
            "order_by": ["attributes.start_time", "attributes.run_id"],
            "max_results": 1,
        }
        runs = self.call("/runs/search", search).get("runs") or [None]
        return None if runs[0] is None else str(runs[0]["info"]["run_id"])

    def log_best(self, sweep: JobRow, run: str) -> None:
        """Log the primary metric and the parameters of a sweep's best trial."""
        try:
            best = self._find(str(sweep.notes.get("best")))
        except NotFound:
            return
        metric = mlflow_run.name(str(sweep.spec["objective"]["primary_metric"]))
        at = round((sweep.ended_at or sweep.created_at) * 1000)
        point = {"key": metric, "value": best.notes["value"], "timestamp": at, "step": 0}
        values = best.plan.task.parameters
        params = _pairs({f"best_{mlflow_run.name(key)}": text for key, text in values.items()})
        data = {"run_id": run, "metrics": [point], "params": params[:PAIRS]}
        self.call("/runs/log-batch", data)

    def log_parameters(self, row: JobRow, run: str) -> None:
        """Log the job's parameters, except those that its script logged itself: MLflow would refuse
        5 after 5.0."""
        values = mlflow_run.run_data(
            row.name, ours(row), row.spec, row.plan.task, row.plan.compute
        ).params
        had = self.get("/runs/get", run_id=run)["run"]["data"].get("params", ()) if values else ()
        left = values.keys() - {each["key"] for each in had}
        params = _pairs({key: value for key, value in values.items() if key in left})
        for first in range(0, len(params), PAIRS):
            self.call("/runs/log-batch", {"run_id": run, "params": params[first : first + PAIRS]})

    def _of(self, row: JobRow) -> Mirrored:
        return self._kept.get(row.id) or self._make(row)

    def _make(self, row: JobRow) -> Mirrored:
        experiment = self._experiment(row.experiment)
        data = mlflow_run.run_data(row.name, ours(row), row.spec, row.plan.task, row.plan.compute)
        run = self._existing(experiment, ours(row)) or self._create(experiment, row, data)
        self._kept.keep(row.id, run, experiment)
        return Mirrored(run, experiment)

    def _experiment(self, name: str) -> str:
        try:
            experiment = self.get("/experiments/get-by-name", experiment_name=name)["experiment"]
        except Gone:
            return str(self.call("/experiments/create", {"name": name})["experiment_id"])
        if experiment["lifecycle_stage"] == "deleted":
            self.call("/experiments/restore", {"experiment_id": experiment["experiment_id"]})
        return str(experiment["experiment_id"])

    def _existing(self, experiment: str, ours: str) -> str | None:
        """The job's run if a server created it but was killed before recording that."""
        search = {
            "experiment_ids": [experiment],
            # Runs created by the job itself have this tag, too, but not the second one.
            "filter": f"tags.`{mlflow_run.RUN_TAG}` = '{ours}' AND tags.`{_MAIN}` = 'true'",
            "run_view_type": "ALL",
            "max_results": 1,
        }
        runs = self.call("/runs/search", search).get("runs") or [None]
        return None if runs[0] is None else str(runs[0]["info"]["run_id"])

    def _create(self, experiment: str, row: JobRow, run_data: mlflow_run.RunData) -> str:
        tags = {**run_data.tags, _MAIN: "true"}
        if row.parent is not None:
            with contextlib.suppress(NotFound):  # its sweep was deleted
                tags[mlflow_run.PARENT_TAG] = self._of(self._find(row.parent)).run_id
        data = {
            "experiment_id": experiment,
            "run_name": run_data.name,
            "start_time": round((row.started_at or row.created_at) * 1000),
            "tags": _pairs(tags),
        }
        return str(self.call("/runs/create", data)["run"]["info"]["run_id"])

    def _answer(self, method: str, path: str, body: bytes | None = None, api: str = API) -> Any:
        status, answer = self._child.ask(method, api + path, body)
        if status < 300:
            return json.loads(answer)
        text = answer.decode(errors="replace")
        if status in (429, 502, 503, 504):
            raise OSError(text[:200])
        error = Gone if status == 404 else Denied if status < 500 else ServerError
        raise error(f"MLflow's server answered {path} with: {text[:500]}")


_MAIN, _TAKEN = "allranks.main", "allranks.taken"


def ours(row: JobRow) -> str:
    """Our id of the job's run, which its ranks know."""
    return mlflow_run.run_id(row.name, row.created_at)


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]
