"""Which versions of models there are, and where their files lie."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from allranks.errors import NotFound
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.fields.problems import nearest
from allranks.store.assets import AssetRow, Assets, find_version
from allranks.store.files.trees import Entry, Trees

KIND = "model"


class ModelVersions(NamedTuple):
    """Those of a home."""

    assets: Assets
    trees: Trees

    def row(self, asset: Asset) -> AssetRow:
        """Raises NotFound."""
        versions = self.assets.versions(asset.name)
        if (row := find_version(versions, asset)) is not None:
            return row
        hint = f"its versions: {', '.join(row.version for row in versions)}"
        if not versions:
            make = f"make it: allranks model register {asset.name} --job JOB --path outputs/…"
            hint = nearest(asset.name, {row.name for row in self.assets.versions()}) or make
        raise NotFound(f"there is no model {asset}", hint=hint)

    def place(self, row: AssetRow) -> Path:
        """What it is to a job: its one file, or the folder of several. Raises NotFound."""
        return self.trees.path(row.spec["digest"])

    def manifest(self, row: AssetRow) -> tuple[Entry, ...]:
        return self.trees.manifest(row.spec["digest"])

    def files(self, row: AssetRow) -> Path:
        """The folder that all of the manifest lies in."""
        return self.trees.files(row.spec["digest"])

    def has(self, source: str | None) -> bool:
        """Whether that is the path of a model."""
        return source is not None and Path(source).is_relative_to(self.trees.folder)

    def hold_to(self, sources: Iterable[str | None]) -> None:
        """Raises NotFound where one of these was a model's that is gone by now."""
        for source in filter(self.has, sources):
            if not Path(source or "").exists():
                raise NotFound("the model was deleted meanwhile", where=source, hint="name another")

    def in_use(self) -> set[str]:
        """The trees that versions have."""
        return {row.spec["digest"] for row in self.assets.versions()}
