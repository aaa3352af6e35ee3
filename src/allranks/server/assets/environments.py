"""Named environments: those registered in this home, and the curated ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from allranks.core.environments import curated
from allranks.core.environments.recipe import Resolved, Table
from allranks.errors import Problem, SpecError
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.fields.problems import nearest
from allranks.spec.job_parts import Environment
from allranks.store.assets import AssetRow, Assets, find_version
from allranks.store.key_values import Settings

KIND = "environment"
_MAP = "environment.map"
# The creation time of curated environments.
_ALWAYS = 0.0


class Environments:
    """The environments of a home; ``assets`` and ``settings`` are None without a database."""

    def __init__(
        self, assets: Assets | None, settings: Settings | None, deleted: bool = False
    ) -> None:
        self._assets, self._settings, self._deleted = assets, settings, deleted

    def with_deleted(self) -> Environments:
        """The same including deleted versions, for jobs that used them and are restarted."""
        return Environments(self._assets, self._settings, deleted=True)

    def versions(self, name: str | None = None) -> list[AssetRow]:
        """All versions of all environments, or of one; curated ones first."""
        always = [
            AssetRow(each, version, dict(spec), (), _ALWAYS)
            for each, versions in curated.ENVIRONMENTS.items()
            for version, spec in versions.items()
            if name in (None, each)
        ]
        return always + (
            [] if self._assets is None else self._assets.versions(name, deleted=self._deleted)
        )

    def find(self, asset: Asset) -> Resolved:
        """The environment that ``asset`` names. Raises SpecError."""
        row = self.row(asset)
        return Resolved(f"{row.name}:{row.version}", Environment.model_validate(row.spec))

    def row(self, asset: Asset) -> AssetRow:
        """The version that ``asset`` names. Raises SpecError."""
        versions = self.versions(asset.name) or self.versions(self._spelled(asset.name))
        if (row := find_version(versions, asset)) is not None:
            return row
        has = ", ".join(row.version for row in versions)
        hint = f"its versions: {has}" if versions else self._others(asset.name)
        raise SpecError(Problem(f"environment {asset} not found", "environment", hint=hint))

    def _spelled(self, name: str) -> str:
        """The existing name that equals ``name`` but for case, else ``name``."""
        names = (row.name for row in self.versions())
        return next((each for each in names if each.lower() == name.lower()), name)

    def _others(self, name: str) -> str:
        """A hint for an unknown name: similar names, and how to map it."""
        near = nearest(name, dict.fromkeys(row.name for row in self.versions()))
        instead = f"allranks environment map {shlex.quote(name)} ENVIRONMENT (or current)"
        if near is None:
            near = "List them: allranks environment list."
        return f"{near} Or map it: {instead}"

    def table(self) -> Table:
        """The map of environments and packages to what replaces them: this home's, then
        built-in."""
        own = self.own_table()
        return {**own, **{name: to for name, to in curated.TABLE.items() if name not in own}}

    def own_table(self) -> dict[str, Any]:
        """The part of the table that is configured in this home."""
        return {} if self._settings is None else dict(self._settings.get(_MAP) or {})

    def change_table(self, entries: Mapping[str, str | None]) -> None:
        """Set replacements; None restores the built-in one, if any."""
        assert self._settings is not None
        self._settings.change(_MAP, dict(entries))
