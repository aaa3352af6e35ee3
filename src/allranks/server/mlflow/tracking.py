"""MLflow's server with its mirror and runs, if MLflow is installed."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Engine

from allranks.core.metrics import mlflow_run
from allranks.server.auth.identity import Auth
from allranks.server.mlflow.child import Child, python
from allranks.server.mlflow.mirror import Mirror
from allranks.server.mlflow.runs import Runs
from allranks.settings import Home
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points
from allranks.store.mlflow_runs import MlflowRuns


class Tracking(NamedTuple):
    """The MLflow server of a home, the MLflow runs of its jobs, and the mirror of their metrics."""

    child: Child
    runs: Runs
    mirror: Mirror

    def stop(self) -> None:
        """Stop the mirror and the MLflow server; returns when both have ended."""
        self.mirror.end()
        self.child.stop()
        self.mirror.join(3.0)

    def rank_variables(self, row: JobRow, auth: Auth) -> dict[str, str]:
        """The MLflow variables of the job's ranks, except the tracking URI."""
        return {
            "MLFLOW_TRACKING_TOKEN": auth.rank_token(row.name, row.record.launch),
            "MLFLOW_RUN_ID": mlflow_run.run_id(row.name, row.created_at),
            "MLFLOW_EXPERIMENT_NAME": row.experiment,
        }


def create(home: Home, database: Engine, records: Records, points: Points) -> Tracking | None:
    """The tracking services of a home, or None without MLflow. The server starts at first use."""
    interpreter = python()
    if interpreter is None:
        return None
    stored = MlflowRuns(database)
    child = Child(home, interpreter, stored.delete_all)
    runs = Runs(child, stored, records.get)
    return Tracking(child, runs, Mirror(child, runs, stored, records, points))
