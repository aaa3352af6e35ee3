"""Versions of models, and the location of their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import NamedTuple

from allranks.errors import NotFound
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.fields.problems import nearest
from allranks.store.assets import AssetRow, Assets, find_version
from allranks.store.files.trees import Entry, Trees

KIND = "model"


class ModelVersions(NamedTuple):
    """The versions of a home's models."""

    assets: Assets
    trees: Trees

    def row(self, asset: Asset) -> AssetRow:
        """The version that ``asset`` names. Raises NotFound."""
        versions = self.assets.versions(asset.name)
        if (row := find_version(versions, asset)) is not None:
            return row
        hint = f"its versions: {', '.join(row.version for row in versions)}"
        if not versions:
            make = f"create it: allranks model register {asset.name} --job JOB --path outputs/…"
            hint = nearest(asset.name, {row.name for row in self.assets.versions()}) or make
        raise NotFound(f"model {asset} not found", hint=hint)

    def place(self, row: AssetRow) -> Path:
        """The path that jobs get: the file, or the folder of several. Raises NotFound."""
        return self.trees.path(row.spec["digest"])

    def registered_as(self, row: AssetRow) -> str:
        """The name of its file or folder, under which scripts expect it; FOLDER/FILE of a folder
        with one file, which jobs get as a file. Raises NotFound."""
        source = row.spec.get("path")
        if not source:
            return row.name
        name, place = PurePath(str(source)).name, self.place(row)
        is_folder = place == self.trees.files(row.spec["digest"])
        return name if is_folder or place.name == name else f"{name}/{place.name}"

    def manifest(self, row: AssetRow) -> tuple[Entry, ...]:
        return self.trees.manifest(row.spec["digest"])

    def files(self, row: AssetRow) -> Path:
        """The folder that contains all files of the manifest."""
        return self.trees.files(row.spec["digest"])

    def has(self, source: str | None) -> bool:
        """Whether ``source`` is the path of a model."""
        return source is not None and Path(source).is_relative_to(self.trees.folder)

    def require_existing(self, sources: Iterable[str | None]) -> None:
        """Raise NotFound if one of these is the path of a deleted model."""
        for source in filter(self.has, sources):
            if not Path(source or "").exists():
                raise NotFound("the model was deleted", where=source, hint="use another one")

    def require_unchanged(self, sources: Iterable[str | None]) -> None:
        """Raise MissingData if one of these is the path of a model whose files were changed."""
        paths = {Path(source or "") for source in filter(self.has, sources)}
        for digest in {path.relative_to(self.trees.folder).parts[0] for path in paths}:
            self.trees.require_unchanged(digest)

    def in_use(self) -> set[str]:
        """The digests of trees that belong to a version."""
        return {row.spec["digest"] for row in self.assets.versions()}
