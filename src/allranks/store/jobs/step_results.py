"""Results of steps that others may take: what each depended on, and what its outputs hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError

from allranks.store.tables import jobs as _jobs
from allranks.store.tables import step_results as _table


class StepResult(NamedTuple):
    """The result of a completed ``job``. ``parts``: what it depended on, ``outputs``: the content
    of each output."""

    job: str
    parts: Mapping[str, str]
    outputs: Mapping[str, str]


class StepResults:
    """The results in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def add(self, job_id: int, step: str, fingerprint: str, result: StepResult) -> None:
        """Record a result. Idempotent."""
        values = {
            "job_id": job_id,
            "step": step,
            "fingerprint": fingerprint,
            "parts": dict(result.parts),
            "outputs": dict(result.outputs),
        }
        try:
            with self._engine.begin() as connection:
                connection.execute(_table.insert().values(**values))
        except IntegrityError:
            pass  # recorded before this server was restarted

    def find(self, fingerprint: str) -> list[StepResult]:
        """The results with a fingerprint, newest first."""
        return self._select(_table.c.fingerprint == fingerprint, 20)

    def latest(self, step: str) -> StepResult | None:
        """The newest result of a step."""
        return next(iter(self._select(_table.c.step == step, 1)), None)

    def _select(self, condition: Any, most: int) -> list[StepResult]:
        query = select(_jobs.c.name, _table.c.parts, _table.c.outputs)
        query = query.join(_jobs, _jobs.c.id == _table.c.job_id).where(condition)
        query = query.order_by(_table.c.job_id.desc()).limit(most)
        with self._reading.connect() as connection:
            return [StepResult(*tuple(row)) for row in connection.execute(query)]
