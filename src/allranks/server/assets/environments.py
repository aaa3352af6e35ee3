"""Environments that have names: those made here, and those that are there without being made."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from allranks.errors import Problem, SpecError
from allranks.plan.environments import curated
from allranks.plan.environments.recipe import Resolved, Table
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.fields.problems import nearest
from allranks.spec.job_parts import Environment
from allranks.store.assets import AssetRow, Assets, find_version
from allranks.store.key_values import Settings

KIND = "environment"
_MAP = "environment.map"
# When nobody made them.
_ALWAYS = 0.0


class Environments:
    """Those of a home. ``assets`` and ``settings`` None: a home that has none yet."""

    def __init__(
        self, assets: Assets | None, settings: Settings | None, deleted: bool = False
    ) -> None:
        self._assets, self._settings, self._deleted = assets, settings, deleted

    def with_deleted(self) -> Environments:
        """The same with versions that were deleted: for jobs that had them, and are run again."""
        return Environments(self._assets, self._settings, deleted=True)

    def versions(self, name: str | None = None) -> list[AssetRow]:
        """All versions of all, or of one; those that nobody made first."""
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
        """Raises SpecError when there is none."""
        row = self.row(asset)
        return Resolved(f"{row.name}:{row.version}", Environment.model_validate(row.spec))

    def row(self, asset: Asset) -> AssetRow:
        """Raises SpecError when there is none."""
        versions = self.versions(asset.name) or self.versions(self._spelled(asset.name))
        if (row := find_version(versions, asset)) is not None:
            return row
        has = ", ".join(row.version for row in versions)
        hint = f"its versions: {has}" if versions else self._others(asset.name)
        raise SpecError(Problem(f"there is no environment {asset}", "environment", hint=hint))

    def _spelled(self, name: str) -> str:
        """The name that is there, where only capital letters differ."""
        known = (row.name for row in self.versions())
        return next((each for each in known if each.lower() == name.lower()), name)

    def _others(self, name: str) -> str:
        """What to do about a name that is not there: the near ones, and the map."""
        near = nearest(name, dict.fromkeys(row.name for row in self.versions()))
        instead = f"allranks environment map {shlex.quote(name)} ENVIRONMENT (or current)"
        if near is None:
            near = "`allranks environment list` shows those that are there."
        return f"{near} Or say what stands for it: {instead}"

    def table(self) -> Table:
        """What is taken in the place of what: what was said here before what is always so."""
        own: Mapping[str, str] = {}
        if self._settings is not None:
            own = self._settings.get(_MAP) or {}
        return {**own, **{name: to for name, to in curated.TABLE.items() if name not in own}}

    def own_table(self) -> dict[str, Any]:
        """The part of the table that was said here."""
        return {} if self._settings is None else dict(self._settings.get(_MAP) or {})

    def change_table(self, entries: Mapping[str, str | None]) -> None:
        """Say what is to be taken for what; None: what is always so, if anything."""
        assert self._settings is not None
        self._settings.change(_MAP, dict(entries))
