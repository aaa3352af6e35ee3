"""Models, for Python programs."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.sdk.assets.register_model import register
from allranks.sdk.connection import find_server
from allranks.sdk.connection.references import reference
from allranks.sdk.transfer.download import download_model
from allranks.spec.model import Model, ModelVersion

if TYPE_CHECKING:
    from allranks.api.assets import ModelAnswer


class Models:
    """Operations on models. All raise AllranksError with a hint."""

    def register(
        self,
        name: str,
        path: str | Path,
        *,
        job: str | None = None,
        version: str | None = None,
        type: str | None = None,
        flavors: Mapping[str, Any] | None = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        labels: Sequence[str] = (),
    ) -> ModelVersion:
        """Create a version from the file or folder at ``path`` of a ``job`` (`outputs/…`), or of
        this machine, which is uploaded. The server keeps its own copy."""
        values = {
            "name": name,
            "path": str(path),
            "job": job,
            "version": version,
            "type": type,
            "flavors": flavors,
            "description": description,
            "tags": tags,
            "properties": properties,
        }
        return _sent({key: value for key, value in values.items() if value is not None}, labels)

    def create_or_update(self, model: Model, *, base: str | Path | None = None) -> ModelVersion:
        """Create a version; its number is the next one if not set. Creating the same version again
        changes nothing. A relative path starts at ``base`` (the current folder)."""
        return _sent(model.model_dump(mode="json", exclude_unset=True), (), base)

    def get(self, name: str, version: str | None = None, label: str = "latest") -> ModelVersion:
        """A version, by number or label."""
        return _version(find_server.ask(routes.show_model, reference(name, version, label)))

    def list(self, name: str | None = None) -> builtins.list[ModelVersion]:
        """The newest version of every asset, or all versions of one."""
        return [_version(each) for each in find_server.ask(routes.list_models, name=name)]

    def label(self, name: str, version: str, *labels: str) -> ModelVersion:
        """Set labels; each moves from the version that had it."""
        data = {"labels": builtins.list(labels)}
        return _version(find_server.ask(routes.label_model, f"{name}:{version}", body=data))

    def delete(self, name: str, version: str) -> None:
        """Delete a version. The next `allranks gc` removes its files unless another version uses
        them."""
        find_server.ask(routes.delete_model, f"{name}:{version}")

    def download(
        self,
        name: str,
        version: str | None = None,
        download_path: str | Path = ".",
        *,
        label: str = "latest",
    ) -> Path:
        """Download it into a folder of its name in ``download_path`` and verify its checksums;
        returns the folder. Existing files are not downloaded again."""
        which = reference(name, version, label)
        download_model(find_server.connect, which, Path(download_path))
        return Path(download_path, name)


def _sent(
    data: Mapping[str, Any], labels: Sequence[str], base: str | Path | None = None
) -> ModelVersion:
    with find_server.connect() as client:
        return _version(register(client, data, Path(base or ".").absolute(), labels))


def _version(answer: ModelAnswer) -> ModelVersion:
    return ModelVersion.model_validate({k: v for k, v in answer.items() if k != "created"})
