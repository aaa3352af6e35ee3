"""Registered components of pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allranks.errors import Problem, SpecError
from allranks.spec.fields.azureml_references import Asset, asset_of
from allranks.spec.fields.problems import nearest
from allranks.store.assets import AssetRow, Assets, find_version
from allranks.store.jobs.job_rows import snapshots

KIND = "component"


class Components:
    """The components of a home; ``assets`` is None without a database."""

    def __init__(self, assets: Assets | None) -> None:
        self._assets = assets

    def versions(self, name: str | None = None) -> list[AssetRow]:
        """All versions of all components, or of one, oldest first."""
        return [] if self._assets is None else self._assets.versions(name)

    def codes(self) -> set[str]:
        """The digests of the code of all versions."""
        return {snapshot for row in self.versions() for snapshot in snapshots(row.spec)}

    def row(self, asset: Asset) -> AssetRow:
        """The version that ``asset`` names. Raises SpecError."""
        versions = self.versions(asset.name)
        if (row := find_version(versions, asset)) is not None:
            return row
        has = ", ".join(row.version for row in versions)
        near = nearest(asset.name, {row.name for row in self.versions()})
        hint = f"its versions: {has}" if has else near or "list them: allranks component list"
        raise SpecError(Problem(f"component {asset} not found", "component", hint=hint))

    def find(self, reference: str, where: str) -> Mapping[str, Any]:
        """The component of a reference in the key ``where``, with its name and version. Raises
        SpecError."""
        try:
            row = self.row(asset_of(reference, where))
        except SpecError as error:
            raise SpecError([problem._replace(where=where) for problem in error.problems]) from None
        return {**row.spec, "name": row.name, "version": row.version}

    def create(self, name: str, version: str | None, spec: Mapping[str, Any]) -> AssetRow:
        """See ``Assets.create``."""
        assert self._assets is not None
        return self._assets.create(name, version, spec)

    def label(self, row: AssetRow, labels: Iterable[str]) -> None:
        assert self._assets is not None
        self._assets.label(row.name, row.version, labels)

    def delete(self, row: AssetRow) -> None:
        assert self._assets is not None
        self._assets.delete(row.name, row.version)
