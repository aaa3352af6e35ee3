"""Which run in MLflow is a job's: made when it is first needed, found again by its tag.

A run's id is MLflow's to choose, and ranks are told theirs before MLflow is asked: theirs stands in
a tag of the run, and the proxy puts the one in the place of the other.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from allranks.errors import AllranksError, ServerError
from allranks.plan.metrics import mlflow_run
from allranks.server.mlflow.child import Child
from allranks.store.job_rows import JobRow
from allranks.store.mlflow_runs import Mirrored, MlflowRuns

API, _API_3 = "/api/2.0/mlflow", "/api/3.0/mlflow"
# What MLflow calls logged models and traces.
_ID = re.compile(r"[\w-]{1,64}")
# Entries of one `log-batch`, of each kind: metrics, and parameters or tags.
METRICS, PAIRS = 1000, 100


class Denied(AllranksError):
    """MLflow took the request, and did not do it."""

    http = 502


class Gone(Denied):
    """What it was asked about is not there."""


class Runs:
    """Those of a home. Safe to use from several threads; calls wait for MLflow's answers, and raise
    OSError when there is none, Denied when it says no."""

    def __init__(self, child: Child, kept: MlflowRuns) -> None:
        self._child, self._kept = child, kept
        self._lock = threading.Lock()
        # Those that some process of their job has.
        self._taken: set[str] = set()

    def of(self, row: JobRow) -> Mirrored:
        """The job's run; made, with all that is known of the job, unless it is there."""
        with self._lock:
            return self._kept.get(row.id) or self._make(row)

    def call(self, path: str, data: Mapping[str, Any]) -> Any:
        return self._answer("POST", path, json.dumps(data).encode())

    def get(self, path: str, **query: str) -> Any:
        return self._answer("GET", f"{path}?{urlencode(query)}")

    def name_of(self, run: str, row: JobRow) -> str | None:
        """What a run is called that the job has made; None if it has not."""
        try:
            found = self.get("/runs/get", run_id=run)["run"]
        except Gone:
            return None
        tags = {each["key"]: each["value"] for each in found["data"].get("tags", ())}
        if tags.get(mlflow_run.RUN_TAG) != ours(row):
            return None
        name = str(found["info"]["run_name"])
        alone = run == self._first_named(name, found["info"]["experiment_id"], row)
        return name if alone else f"{name}_{run[:6]}"

    def owns_model(self, model: str, row: JobRow) -> bool:
        """Whether the job has made the logged model, by the model's tag or its run."""
        if not _ID.fullmatch(model):
            return False
        try:
            info = self.get(f"/logged-models/{model}")["model"]["info"]
        except Gone:
            return False
        if _tag(info.get("tags", ())) == ours(row):
            return True
        source = str(info.get("source_run_id") or "")
        if source == self.of(row).run_id:
            return True
        return bool(source) and self.name_of(source, row) is not None

    def owns_trace(self, trace: str, row: JobRow) -> bool:
        """Whether the job has begun the trace, or nobody has."""
        if not _ID.fullmatch(trace):
            return False
        try:
            info = self._answer("GET", f"/traces/{trace}", api=_API_3)["trace"]["trace_info"]
        except Gone:
            return True
        return bool(info.get("trace_metadata", {}).get(mlflow_run.RUN_TAG) == ours(row))

    def take(self, run: str) -> bool:
        """Note that a process of its job has the run; whether none had."""
        with self._lock:
            if run in self._taken:
                return False
            tags = self.get("/runs/get", run_id=run)["run"]["data"].get("tags", ())
            had = any(each["key"] == _TAKEN for each in tags)
            if not had:
                self.call("/runs/set-tag", {"run_id": run, "key": _TAKEN, "value": "true"})
            self._taken.add(run)
            return not had

    def _first_named(self, name: str, experiment: str, row: JobRow) -> str | None:
        """Of the runs of that name that the job has made, the first: folds are all called so."""
        if not name.isprintable() or set(name) & set("'\"\\`%_"):
            return None  # what a filter cannot say
        asked = {
            "experiment_ids": [experiment],
            "filter": (
                f"tags.`{mlflow_run.RUN_TAG}` = '{ours(row)}' AND attributes.run_name = '{name}'"
            ),
            "run_view_type": "ALL",
            "order_by": ["attributes.start_time", "attributes.run_id"],
            "max_results": 1,
        }
        runs = self.call("/runs/search", asked).get("runs") or [None]
        return None if runs[0] is None else str(runs[0]["info"]["run_id"])

    def tell_parameters(self, row: JobRow, run: str) -> None:
        """Those of the job that its script has not told by itself: 5 is 5.0 to scripts, and to
        MLflow another value."""
        told = mlflow_run.run_data(
            row.name, ours(row), row.spec, row.plan.task, row.plan.compute
        ).params
        had = self.get("/runs/get", run_id=run)["run"]["data"].get("params", ()) if told else ()
        left = told.keys() - {each["key"] for each in had}
        params = _pairs({key: value for key, value in told.items() if key in left})
        for first in range(0, len(params), PAIRS):
            self.call("/runs/log-batch", {"run_id": run, "params": params[first : first + PAIRS]})

    def _make(self, row: JobRow) -> Mirrored:
        experiment = self._experiment(row.experiment)
        told = mlflow_run.run_data(row.name, ours(row), row.spec, row.plan.task, row.plan.compute)
        run = self._found(experiment, ours(row)) or self._create(experiment, row, told)
        self._kept.keep(row.id, run, experiment)
        return Mirrored(run, experiment)

    def _experiment(self, name: str) -> str:
        try:
            found = self.get("/experiments/get-by-name", experiment_name=name)["experiment"]
        except Gone:
            return str(self.call("/experiments/create", {"name": name})["experiment_id"])
        if found["lifecycle_stage"] == "deleted":
            self.call("/experiments/restore", {"experiment_id": found["experiment_id"]})
        return str(found["experiment_id"])

    def _found(self, experiment: str, ours: str) -> str | None:
        """Made by a server that was ended before it could write that down."""
        asked = {
            "experiment_ids": [experiment],
            # Runs that the job itself has made have the tag, too, and a parent.
            "filter": f"tags.`{mlflow_run.RUN_TAG}` = '{ours}' AND tags.`{_MAIN}` = 'true'",
            "run_view_type": "ALL",
            "max_results": 1,
        }
        runs = self.call("/runs/search", asked).get("runs") or [None]
        return None if runs[0] is None else str(runs[0]["info"]["run_id"])

    def _create(self, experiment: str, row: JobRow, told: mlflow_run.RunData) -> str:
        data = {
            "experiment_id": experiment,
            "run_name": told.name,
            "start_time": round((row.started_at or row.created_at) * 1000),
            "tags": _pairs({**told.tags, _MAIN: "true"}),
        }
        return str(self.call("/runs/create", data)["run"]["info"]["run_id"])

    def _answer(self, method: str, path: str, body: bytes | None = None, api: str = API) -> Any:
        status, answer = self._child.ask(method, api + path, body)
        if status < 300:
            return json.loads(answer)
        said = answer.decode(errors="replace")
        if status in (429, 502, 503, 504):
            raise OSError(said[:200])
        error = Gone if status == 404 else Denied if status < 500 else ServerError
        raise error(f"MLflow's server says to {path}: {said[:500]}")


_MAIN, _TAKEN = "allranks.main", "allranks.taken"


def ours(row: JobRow) -> str:
    """The id of the job's run, as its ranks are told it."""
    return mlflow_run.run_id(row.name, row.created_at)


def _tag(tags: Iterable[Mapping[str, str]]) -> str | None:
    """The id of the job's run that the tags tell."""
    return next((each["value"] for each in tags if each["key"] == mlflow_run.RUN_TAG), None)


def _pairs(told: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in told.items()]
