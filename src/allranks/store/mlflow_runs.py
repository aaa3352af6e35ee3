"""What MLflow's server has of each job: its run there, and how far each series is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Engine, delete, func, select, update

from allranks.store.database import jobs as _jobs
from allranks.store.database import mlflow_runs as _runs


class Mirrored(NamedTuple):
    """``positions``: points that are there, by the series' id. ``done``: nothing more will come."""

    run_id: str
    experiment_id: str
    positions: Mapping[int, int] = {}
    done: bool = False


class MlflowRuns:
    """Those of one database. Safe to use from several threads."""

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
        """The job's run, of which nothing is told yet."""
        values = {"job_id": job_id, "run_id": run_id, "experiment_id": experiment_id}
        with self._engine.begin() as connection:
            connection.execute(delete(_runs).where(_runs.c.job_id == job_id))
            connection.execute(_runs.insert().values(**values, positions={}, done=0))

    def moved(self, job_id: int, positions: Mapping[int, int], *, done: bool = False) -> None:
        told = {str(key): value for key, value in positions.items()}
        change = update(_runs).where(_runs.c.job_id == job_id)
        with self._engine.begin() as connection:
            connection.execute(change.values(positions=told, done=int(done)))

    def forget_all(self) -> None:
        """That server's database is a new one: nothing is there."""
        with self._engine.begin() as connection:
            connection.execute(delete(_runs))

    def give_up(self, job_id: int) -> None:
        """It does not take the job: nothing more will come."""
        with self._engine.begin() as connection:
            known = select(_runs.c.job_id).where(_runs.c.job_id == job_id)
            if connection.execute(known).first() is None:
                values = {"job_id": job_id, "run_id": "", "experiment_id": ""}
                connection.execute(_runs.insert().values(**values, positions={}, done=1))
            else:
                connection.execute(update(_runs).where(_runs.c.job_id == job_id).values(done=1))

    def waiting(self) -> list[tuple[str, float, str]]:
        """Name, time of creation and status of the jobs of which not all is there, the newest
        first."""
        query = (
            select(_jobs.c.name, _jobs.c.created_at, _jobs.c.status)
            .outerjoin(_runs, _runs.c.job_id == _jobs.c.id)
            .where(func.coalesce(_runs.c.done, 0) == 0)
            .order_by(_jobs.c.id.desc())
        )
        with self._reading.connect() as connection:
            return [(row.name, row.created_at, row.status) for row in connection.execute(query)]
