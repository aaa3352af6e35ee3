"""Things that have a name and versions: environments, and whatever else is kept that way.

A version never changes: what differs is another version. Labels move; `latest` is the newest
version and nobody sets it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, insert, select, update

from allranks.errors import Conflict, NotFound
from allranks.spec.fields.azureml_references import Asset
from allranks.store.database import assets as _assets

LATEST = "latest"


class AssetRow(NamedTuple):
    """A version. ``new``: it was not there before."""

    name: str
    version: str
    spec: dict[str, Any]
    labels: tuple[str, ...]
    created_at: float
    new: bool = False


class Assets:
    """Those of one kind, which is a word such as `environment`."""

    def __init__(self, engine: Engine, kind: str) -> None:
        self._engine, self._kind = engine, kind
        self._reading = engine.execution_options(read_only=True)

    def versions(self, name: str | None = None, *, deleted: bool = False) -> list[AssetRow]:
        """All versions, of one name or of all; the oldest first. ``deleted``: those, too."""
        query = select(_assets).where(_assets.c.kind == self._kind).order_by(_assets.c.id)
        if not deleted:
            query = query.where(_assets.c.deleted_at.is_(None))
        if name is not None:
            query = query.where(_assets.c.name == name)
        with self._reading.connect() as connection:
            return [_row(each) for each in connection.execute(query)]

    def create(
        self,
        name: str,
        version: str | None,
        spec: Mapping[str, Any],
        ready: Callable[[], object] = lambda: None,
    ) -> AssetRow:
        """Add a version; without one, the number after the highest, unless the newest is the very
        same. What is there already is left as it is. ``ready`` is called before anybody can see it:
        what it is made of has to be there by then. Raises Conflict."""
        with self._engine.begin() as connection:
            mine = (_assets.c.kind == self._kind) & (_assets.c.name == name)
            query = select(_assets).where(mine).order_by(_assets.c.id)
            found = [(_row(each), each.deleted_at) for each in connection.execute(query)]
            rows = [row for row, _ in found]
            if version is None:
                if found and found[-1][1] is None and rows[-1].spec == dict(spec):
                    ready()
                    return rows[-1]
                numbers = (int(row.version) for row in rows if row.version.isdecimal())
                version = str(max(numbers, default=0) + 1)
            for row, deleted_at in found:
                if row.version == version:
                    same = _same(row, None if deleted_at is not None else spec, self._kind)
                    ready()
                    return same
            ready()
            made = AssetRow(name, version, dict(spec), (), time.time(), new=True)
            values = {**made._asdict(), "labels": [], "kind": self._kind}
            del values["new"]
            connection.execute(insert(_assets).values(**values))
        return made

    def delete(self, name: str, version: str) -> None:
        """Take a version away; its number does not come back. Raises NotFound."""
        values = {"deleted_at": time.time(), "labels": []}
        here = self._one(name, version) & (_assets.c.deleted_at.is_(None))
        with self._engine.begin() as connection:
            gone = connection.execute(update(_assets).where(here).values(**values))
        if not gone.rowcount:
            raise self._none(name, version)

    def label(self, name: str, version: str, labels: Iterable[str]) -> None:
        """Give labels to a version, and take them from the others. Raises NotFound."""
        given = set(labels)
        with self._engine.begin() as connection:
            mine = (_assets.c.kind == self._kind) & (_assets.c.name == name)
            query = select(_assets).where(mine & _assets.c.deleted_at.is_(None))
            rows = [_row(each) for each in connection.execute(query)]
            for row in rows:
                has = set(row.labels) | given if row.version == version else set(row.labels) - given
                if has != set(row.labels):
                    one = update(_assets).where(self._one(name, row.version))
                    connection.execute(one.values(labels=sorted(has)))
        if not any(row.version == version for row in rows):
            raise self._none(name, version)

    def _one(self, name: str, version: str) -> Any:
        one = (_assets.c.name == name) & (_assets.c.version == version)
        return (_assets.c.kind == self._kind) & one

    def _none(self, name: str, version: str) -> NotFound:
        has = ", ".join(row.version for row in self.versions(name))
        hint = f"its versions: {has}" if has else f"allranks {self._kind} list"
        return NotFound(f"there is no {self._kind} {name}:{version}", hint=hint)


def named(versions: Sequence[AssetRow], asset: Asset) -> AssetRow | None:
    """Of the versions of one name, the oldest first, the one that is meant."""
    for row in versions[::-1]:
        if asset.version in ("", row.version) and asset.label in ("", LATEST, *row.labels):
            return row
    return None


def _same(row: AssetRow, spec: Mapping[str, Any] | None, kind: str) -> AssetRow:
    if spec is None or row.spec != dict(spec):
        was = "was deleted" if spec is None else "is there already, and is another"
        raise Conflict(
            f"the {kind} {row.name}:{row.version} {was}",
            hint="a version never changes: leave `version` out to add the next",
        )
    return row


def _row(row: Any) -> AssetRow:
    return AssetRow(row.name, row.version, row.spec, tuple(row.labels), row.created_at)
