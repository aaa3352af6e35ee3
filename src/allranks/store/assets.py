"""Assets: data, models and environments with a name and versions.

A version never changes. Labels can move between versions; `latest` is always the newest version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, insert, select, update

from allranks.errors import Conflict, NotFound
from allranks.spec.fields.azureml_references import Asset
from allranks.store.tables import assets as _assets

LATEST = "latest"


class AssetRow(NamedTuple):
    """A version of an asset. ``new``: created by this call."""

    name: str
    version: str
    spec: dict[str, Any]
    labels: tuple[str, ...]
    created_at: float
    new: bool = False


class Assets:
    """The assets of one kind, such as `environment`."""

    def __init__(self, engine: Engine, kind: str) -> None:
        self._engine, self._kind = engine, kind
        self._reading = engine.execution_options(read_only=True)

    def versions(self, name: str | None = None, *, deleted: bool = False) -> list[AssetRow]:
        """All versions, of one name or of all, oldest first; also ``deleted`` ones if set."""
        query = select(_assets).where(_assets.c.kind == self._kind).order_by(_assets.c.id)
        if not deleted:
            query = query.where(_assets.c.deleted_at.is_(None))
        if name is not None:
            query = query.where(_assets.c.name == name)
        with self._reading.connect() as connection:
            return [_row(row) for row in connection.execute(query)]

    def create(
        self,
        name: str,
        version: str | None,
        spec: Mapping[str, Any],
        ready: Callable[[], object] = lambda: None,
    ) -> AssetRow:
        """Add a version, or return the existing one with the same spec. Without ``version``: the
        newest if it has that spec, else the number after the highest. ``ready`` is called before
        the version becomes visible. Raises Conflict if the version exists with another spec."""
        with self._engine.begin() as connection:
            mine = (_assets.c.kind == self._kind) & (_assets.c.name == name)
            query = select(_assets).where(mine).order_by(_assets.c.id)
            existing = [(_row(row), row.deleted_at) for row in connection.execute(query)]
            rows = [row for row, _ in existing]
            if version is None:
                if existing and existing[-1][1] is None and rows[-1].spec == dict(spec):
                    ready()
                    return rows[-1]
                numbers = (int(row.version) for row in rows if row.version.isdecimal())
                version = str(max(numbers, default=0) + 1)
            for row, deleted_at in existing:
                if row.version == version:
                    _check_same(row, None if deleted_at is not None else spec, self._kind)
                    ready()
                    return row
            ready()
            created = AssetRow(name, version, dict(spec), (), time.time(), new=True)
            values = {**created._asdict(), "labels": [], "kind": self._kind}
            del values["new"]
            connection.execute(insert(_assets).values(**values))
        return created

    def delete(self, name: str, version: str) -> None:
        """Delete a version; its number is not reused. Raises NotFound."""
        values = {"deleted_at": time.time(), "labels": []}
        existing = self._one(name, version) & (_assets.c.deleted_at.is_(None))
        with self._engine.begin() as connection:
            deleted = connection.execute(update(_assets).where(existing).values(**values))
        if not deleted.rowcount:
            raise self._not_found(name, version)

    def label(self, name: str, version: str, labels: Iterable[str]) -> None:
        """Move labels to a version. Raises NotFound."""
        moved = set(labels)
        with self._engine.begin() as connection:
            mine = (_assets.c.kind == self._kind) & (_assets.c.name == name)
            query = select(_assets).where(mine & _assets.c.deleted_at.is_(None))
            rows = [_row(row) for row in connection.execute(query)]
            for row in rows:
                before = set(row.labels)
                after = before | moved if row.version == version else before - moved
                if after != before:
                    one = update(_assets).where(self._one(name, row.version))
                    connection.execute(one.values(labels=sorted(after)))
        if not any(row.version == version for row in rows):
            raise self._not_found(name, version)

    def _one(self, name: str, version: str) -> Any:
        one = (_assets.c.name == name) & (_assets.c.version == version)
        return (_assets.c.kind == self._kind) & one

    def _not_found(self, name: str, version: str) -> NotFound:
        existing = ", ".join(row.version for row in self.versions(name))
        hint = f"its versions: {existing}" if existing else f"allranks {self._kind} list"
        return NotFound(f"{self._kind} {name}:{version} not found", hint=hint)


def find_version(versions: Sequence[AssetRow], asset: Asset) -> AssetRow | None:
    """The version that ``asset`` refers to, among those of its name, oldest first; or None."""
    for row in versions[::-1]:
        if asset.version in ("", row.version) and asset.label in ("", LATEST, *row.labels):
            return row
    return None


def _check_same(row: AssetRow, spec: Mapping[str, Any] | None, kind: str) -> None:
    if spec is None or row.spec != dict(spec):
        state = "was deleted" if spec is None else "already exists with other content"
        hint = "versions never change: leave out `version` to add the next one"
        raise Conflict(f"the {kind} {row.name}:{row.version} {state}", hint=hint)


def _row(row: Any) -> AssetRow:
    return AssetRow(row.name, row.version, row.spec, tuple(row.labels), row.created_at)
