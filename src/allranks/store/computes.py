"""The computes of a home, the default compute, and names that are aliases of another compute."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, delete, insert, select, update

from allranks.errors import Conflict, NotFound
from allranks.store.key_values import Settings
from allranks.store.tables import computes as _computes

_DEFAULT, _MAP = "compute.default", "compute.map"
_INSTANCES = "instance.map"


class ComputeRow(NamedTuple):
    name: str
    spec: dict[str, Any]
    created_at: float


class Computes:
    """``changes`` counts what this process has changed: only the server of a home does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)
        self._settings = Settings(engine)
        self.changes = 0

    def list(self) -> list[ComputeRow]:
        query = select(_computes).order_by(_computes.c.name)
        with self._reading.connect() as connection:
            rows = connection.execute(query)
            return [ComputeRow(row.name, row.spec, row.created_at) for row in rows]

    def expect_free(self, name: str) -> None:
        """Raise Conflict if a compute has that name."""
        if any(row.name == name for row in self.list()):
            hint = f"choose another name, or change it: allranks compute update {name} …"
            raise Conflict(f"a compute named {name!r} already exists", hint=hint)

    def create(self, name: str, spec: Mapping[str, Any]) -> None:
        """Add a compute. Raises Conflict if the name is taken."""
        self.expect_free(name)
        with self._engine.begin() as connection:
            values = {"name": name, "spec": dict(spec), "created_at": time.time()}
            connection.execute(insert(_computes).values(**values))
        self.changes += 1

    def put(self, name: str, spec: Mapping[str, Any]) -> None:
        """Add or replace a compute."""
        with self._engine.begin() as connection:
            same = _computes.c.name == name
            done = connection.execute(update(_computes).where(same).values(spec=dict(spec)))
            if not done.rowcount:
                values = {"name": name, "spec": dict(spec), "created_at": time.time()}
                connection.execute(insert(_computes).values(**values))
        self.changes += 1

    def delete(self, name: str) -> None:
        """Delete a compute and its aliases. Raises NotFound."""
        with self._engine.begin() as connection:
            deleted = connection.execute(delete(_computes).where(_computes.c.name == name))
        if not deleted.rowcount:
            raise NotFound(f"compute {name!r} not found", hint="allranks compute list")
        self.set_aliases(
            {name: None for name, target in self.aliases().items() if target == name},
            default="" if self.default() == name else None,
        )

    def default(self) -> str:
        """The default compute's name; '' for the built-in one."""
        return str(self._settings.get(_DEFAULT) or "")

    def aliases(self) -> dict[str, str]:
        """Names that stand for another compute, with that compute's name."""
        return dict(self._settings.get(_MAP) or {})

    def instances(self) -> dict[str, int]:
        """The configured number of GPUs by instance type."""
        return dict(self._settings.get(_INSTANCES) or {})

    def change_instances(self, entries: Mapping[str, int | None]) -> None:
        """Set the number of GPUs of instance types; None restores the built-in number."""
        self._settings.change(_INSTANCES, dict(entries))

    def set_aliases(self, names: Mapping[str, str | None], default: str | None = None) -> None:
        """Make names stand for another compute (None removes them), and set the default."""
        if names:
            self._settings.change(_MAP, dict(names))
        if default is not None:
            self._settings.set(_DEFAULT, default)
        self.changes += 1
