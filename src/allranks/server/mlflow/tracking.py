"""MLflow's server and what belongs to it, where there is one."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Engine

from allranks.plan.metrics import mlflow_run
from allranks.server.auth.identity import Auth
from allranks.server.mlflow.child import Child, python
from allranks.server.mlflow.mirror import Mirror
from allranks.server.mlflow.runs import Runs
from allranks.settings import Home
from allranks.store.job_rows import JobRow
from allranks.store.metric_points import Points
from allranks.store.mlflow_runs import MlflowRuns
from allranks.store.records import Records


class Tracking(NamedTuple):
    """Of a home: the child, the runs of its jobs, and what tells it of them."""

    child: Child
    runs: Runs
    mirror: Mirror

    def stop(self) -> None:
        """End all of it; returns when the child has ended."""
        self.mirror.stop()
        self.child.stop()
        self.mirror.join(3.0)

    def invitation(self, row: JobRow, auth: Auth) -> dict[str, str]:
        """What the job's ranks need to speak to it, but for where it is."""
        return {
            "MLFLOW_TRACKING_TOKEN": auth.rank_token(row.name, row.record.launch),
            "MLFLOW_RUN_ID": mlflow_run.run_id(row.name, row.created_at),
            "MLFLOW_EXPERIMENT_NAME": row.experiment,
        }


def begin(home: Home, database: Engine, records: Records, points: Points) -> Tracking | None:
    """Ready to be started by whoever first speaks to it; None where there is no MLflow."""
    found = python()
    if found is None:
        return None
    kept = MlflowRuns(database)
    child = Child(home, found, kept.delete_all)
    runs = Runs(child, kept)
    return Tracking(child, runs, Mirror(child, runs, kept, records, points))
