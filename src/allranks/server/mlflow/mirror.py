"""Mirror metrics and status of jobs to MLflow while its server runs.

The position of each series is stored in our database after MLflow has accepted a batch. After a
crash between the two the batch is sent again; MLflow ignores identical points.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from allranks.core.metrics import mlflow_run, names
from allranks.core.plan import Task
from allranks.errors import AllranksError, NotFound
from allranks.server.mlflow.child import Child
from allranks.server.mlflow.runs import METRICS, Denied, Runs, ours
from allranks.server.worker import Worker
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from allranks.store.metric_points import METRIC, RESOURCE, Points, Series
from allranks.store.mlflow_runs import MlflowRuns

log = logging.getLogger("allranks.mlflow")

# Seconds between two passes.
_PACE = 1.0
# The most batches of one job in a pass.
_BATCHES = 20
# Jobs that have no nodes yet, and no metrics.
_WAITS = (JobStatus.NOT_STARTED, JobStatus.QUEUED)


class Mirror(Worker):
    """Idle while MLflow's server is down."""

    def __init__(
        self, child: Child, runs: Runs, kept: MlflowRuns, records: Records, points: Points
    ) -> None:
        super().__init__("mlflow mirror", retry=_PACE)
        self._child, self._runs, self._kept = child, runs, kept
        self._records, self._points = records, points
        # The last status sent of each job, by our run id.
        self._status: dict[str, str] = {}
        # Whether a pass was completed, so that MLflow has everything from before it.
        self.passed = False

    def look(self, names: set[str]) -> float:
        if not self._child.up.wait(_PACE):
            return 0.0
        self.run_pass()
        self.passed = True
        return _PACE

    def run_pass(self) -> None:
        """Send all news. Raises OSError if MLflow's server does not answer."""
        for name, created_at, status in self._kept.waiting():
            if self.ending.is_set():
                return
            mirrored = self._status.get(mlflow_run.run_id(name, created_at))
            if status in _WAITS and mirrored == mlflow_run.STATUS[JobStatus(status)]:
                continue
            try:
                self._send(self._records.get(name))
            except NotFound:
                continue  # deleted meanwhile
            except Denied as error:
                # Permanent: its run or experiment was deleted in MLflow.
                log.warning("%s is not in MLflow: %s", name, error)
                self._kept.give_up(self._records.get(name).id)
            except AllranksError as error:
                log.warning("%s: mirroring failed, retrying soon: %s", name, error)

    def _send(self, row: JobRow) -> None:
        """Send everything new of one job. ``row`` is read before its points, so that an ended job
        has all its points."""
        mirrored = self._runs.of(row)
        positions = dict(mirrored.positions)
        for number, (batch, after) in enumerate(self._batches(row, positions)):
            if number == _BATCHES:
                return  # the rest in the next pass, so that other jobs are not delayed
            self._runs.call("/runs/log-batch", {"run_id": mirrored.run_id, "metrics": batch})
            positions |= after
            self._kept.set_positions(row.id, positions)
        status, ended = mlflow_run.STATUS[row.record.status], row.record.status in TERMINAL
        if ended:
            self._runs.log_parameters(row, mirrored.run_id)
            if row.type == "sweep":
                self._runs.log_best(row, mirrored.run_id)
        if ended or self._status.get(ours(row)) != status:
            data: dict[str, Any] = {"run_id": mirrored.run_id, "status": status}
            if ended and row.ended_at is not None:
                data["end_time"] = round(row.ended_at * 1000)
            self._runs.call("/runs/update", data)
            self._status[ours(row)] = status
        if ended:
            self._kept.set_positions(row.id, positions, done=True)
            self._status.pop(ours(row), None)

    def _batches(
        self, row: JobRow, positions: dict[int, int]
    ) -> Iterator[tuple[list[dict[str, Any]], dict[int, int]]]:
        """Batches of new points, each with the positions that its series have afterwards."""
        batch: list[dict[str, Any]] = []
        after: dict[int, int] = {}
        for one, kind in self._series(row):
            for number, entry in enumerate(
                self._entries(one, kind, row.plan.task, positions.get(one.id, 0)),
                positions.get(one.id, 0) + 1,
            ):
                batch.append(entry)
                after[one.id] = number
                if len(batch) == METRICS:
                    yield batch, after
                    batch, after = [], {}
        if batch:
            yield batch, after

    def _series(self, row: JobRow) -> Iterator[tuple[Series, str]]:
        metrics = self._points.series(row.id, METRIC)
        declared = {metric.name for metric in row.plan.task.metrics}
        # Metrics that a script logged to MLflow itself are there already, and stay alone there if
        # it logged them to another tracker, too.
        logged = {one.name for one in metrics if one.rank is None} - declared
        for one in metrics:
            if one.rank is not None and one.name not in logged:
                yield one, METRIC
        for one in self._points.series(row.id, RESOURCE):
            yield one, RESOURCE

    def _entries(self, one: Series, kind: str, task: Task, since: int) -> Iterator[dict[str, Any]]:
        divisor = 1.0
        if kind == METRIC:
            key = mlflow_run.metric(
                one.name, one.rank, names.names_rank(task, one.name, one.rank or 0)
            )
            if since == 0 and mlflow_run.renamed([one.name]):
                log.warning(
                    "%s: MLflow does not allow the metric name %r; it is %r there",
                    task.job,
                    one.name,
                    key,
                )
        else:
            key, divisor = mlflow_run.resource(one.name, task.nodes, one.node, one.rank, one.gpu)
        for number, point in enumerate(self._points.read(one, since), since):
            yield {
                "key": key,
                "value": point._replace(value=point.value / divisor).number,
                "timestamp": round(point.at * 1000),
                "step": point.step if kind == METRIC else number,
            }
