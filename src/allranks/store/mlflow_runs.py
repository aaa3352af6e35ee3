"""Which run on the MLflow server belongs to a job, and how many points of each series it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Engine, delete, func, select, update

from allranks.store.tables import jobs as _jobs
from allranks.store.tables import mlflow_runs as _runs


class Mirrored(NamedTuple):
    """A job's MLflow run. ``positions``: number of points sent by series id. ``done``: complete."""

    run_id: str
    experiment_id: str
    positions: Mapping[int, int] = {}
    done: bool = False


class MlflowRuns:
    """The MLflow runs in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def get(self, job_id: int) -> Mirrored | None:
        columns = (_runs.c.run_id, _runs.c.experiment_id, _runs.c.positions, _runs.c.done)
        with self._reading.connect() as connection:
            row = connection.execute(select(*columns).where(_runs.c.job_id == job_id)).first()
        if row is None or not row.run_id:
            return None
        positions = {int(key): int(value) for key, value in row.positions.items()}
        return Mirrored(row.run_id, row.experiment_id, positions, bool(row.done))

    def keep(self, job_id: int, run_id: str, experiment_id: str) -> None:
        """Store a job's new run, to which nothing has been sent."""
        values = {"job_id": job_id, "run_id": run_id, "experiment_id": experiment_id}
        with self._engine.begin() as connection:
            connection.execute(delete(_runs).where(_runs.c.job_id == job_id))
            connection.execute(_runs.insert().values(**values, positions={}, done=0))

    def set_positions(
        self, job_id: int, positions: Mapping[int, int], *, done: bool = False
    ) -> None:
        stored = {str(key): value for key, value in positions.items()}
        change = update(_runs).where(_runs.c.job_id == job_id)
        with self._engine.begin() as connection:
            connection.execute(change.values(positions=stored, done=int(done)))

    def delete_all(self) -> None:
        """Delete all runs, because the MLflow server has a new database."""
        with self._engine.begin() as connection:
            connection.execute(delete(_runs))

    def give_up(self, job_id: int) -> None:
        """Mark a job as done, because the MLflow server rejects it."""
        with self._engine.begin() as connection:
            existing = select(_runs.c.job_id).where(_runs.c.job_id == job_id)
            if connection.execute(existing).first() is None:
                values = {"job_id": job_id, "run_id": "", "experiment_id": ""}
                connection.execute(_runs.insert().values(**values, positions={}, done=1))
            else:
                connection.execute(update(_runs).where(_runs.c.job_id == job_id).values(done=1))

    def waiting(self) -> list[tuple[str, float, str]]:
        """Name, creation time and status of the jobs that are not done, newest first."""
        query = (
            select(_jobs.c.name, _jobs.c.created_at, _jobs.c.status)
            .outerjoin(_runs, _runs.c.job_id == _jobs.c.id)
            .where(func.coalesce(_runs.c.done, 0) == 0)
            .order_by(_jobs.c.id.desc())
        )
        with self._reading.connect() as connection:
            return [(row.name, row.created_at, row.status) for row in connection.execute(query)]
