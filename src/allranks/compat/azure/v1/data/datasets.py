"""`azureml.core.Dataset`, `azureml.data`: data as inputs of jobs."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import Bound
from allranks.compat.azure.v1.data.addresses import address, local
from allranks.compat.azure.v1.data.datastore import MODES, Datastore, copied
from allranks.compat.azure.v1.exceptions import UserErrorException, found
from allranks.sdk import Client
from allranks.spec import data as data_spec

if TYPE_CHECKING:
    from allranks.api.common import Document


class FileDataset:
    """Files at one address."""

    type = "uri_folder"

    def __init__(self, path: str, type: str = "uri_folder") -> None:
        self.path, self.type = path, type
        self.name: str | None = None
        self.version: str | None = None
        self.id = hashlib.sha256(path.encode()).hexdigest()[:16]

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(self.name or "input", self, "mount")

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(self.name or "input", self, "download")

    def bind(self, bound: Bound) -> str:
        return self.as_mount().bind(bound)

    def data(self) -> Document:
        """The input of a job file."""
        path = f"azureml:{self.name}:{self.version}" if self.version else self.path
        return {"type": self.type, "path": path}

    def register(
        self,
        workspace: object,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        create_new_version: bool = False,
    ) -> FileDataset:
        """Create a data asset, or its next version if the newest has another path."""
        name = asset_name(name)
        optional = {"description": description, "tags": tags}
        made = data_spec.Data.model_validate(
            {"name": name, "path": self.path, "type": self.type}
            | {key: each for key, each in optional.items() if each}
        )
        newest = [each for each in Client().data.list() if each.name == name]
        same = bool(newest) and newest[0].path == self.path
        registered = newest[0] if same else Client().data.create_or_update(made)
        self.name, self.version = name, registered.version
        return self

    def to_path(self) -> list[str]:
        """The files, as paths that begin with `/`."""
        folder = self._folder()
        if folder.is_file():
            return [f"/{folder.name}"]
        return [f"/{each.relative_to(folder).as_posix()}" for each in _files(folder)]

    def download(
        self, target_path: str | None = None, overwrite: bool = False, **_: Any
    ) -> list[str]:
        """Copy the files to this machine; returns their paths."""
        source = self._folder()
        folder = Path(target_path or ".")
        copies = []
        for file in _files(source):
            own = file.name if source.is_file() else file.relative_to(source)
            copies.append(str(copied(file, folder / own, overwrite)))
        return copies

    @contextlib.contextmanager
    def mount(self, mount_point: str | None = None) -> Iterator[Any]:
        """Not a mount: ``mount_point`` of what is yielded is the folder itself."""
        yield type("MountContext", (), {"mount_point": str(self._folder())})()

    def _folder(self) -> Path:
        return local(self.path)

    def __repr__(self) -> str:
        return f"FileDataset(path={self.path!r}, name={self.name!r}, version={self.version!r})"


class TabularDataset(FileDataset):
    """Tables in files at one address. Jobs get the files."""

    def __init__(
        self, path: str, type: str = "uri_folder", reader: str = "csv", **how: Any
    ) -> None:
        super().__init__(path, type)
        self._reader, self._how = reader, how

    def to_pandas_dataframe(self, **_: Any) -> Any:
        """All rows. Needs pandas."""
        import pandas  # type: ignore[import-untyped] # lazy: the program's own

        readers = {"csv": pandas.read_csv, "json": pandas.read_json, "parquet": pandas.read_parquet}
        read = readers[self._reader]
        several = [read(each, **self._how) for each in _files(self._folder())]
        return pandas.concat(several, ignore_index=True)

    def take(self, count: int) -> Any:
        return type("Rows", (), {"to_pandas_dataframe": lambda _: self._rows(count)})()

    def _rows(self, count: int) -> Any:
        return self.to_pandas_dataframe().head(count)


def asset_name(name: str) -> str:
    """The name of a data asset for a dataset's, which may have blanks."""
    return re.sub(r"[^\w.-]+", "-", name.strip())


class DatasetConsumptionConfig:
    """A dataset as an argument, mounted or downloaded."""

    def __init__(
        self, name: str, dataset: Any, mode: str = "direct", path_on_compute: str | None = None
    ) -> None:
        self.name, self.dataset, self.mode = name, dataset, mode

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(self.name, self.dataset, "mount")

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(self.name, self.dataset, "download")

    def data(self) -> Document:
        data: Document = self.dataset.data()
        # Files that are consumed as they are: scripts find a path for `input_datasets[NAME]`.
        return {**data, "mode": MODES["mount" if self.mode == "direct" else self.mode]}

    def bind(self, bound: Bound) -> str:
        return bound.input(self.name, self.data())


class Files:
    @staticmethod
    def from_files(path: Any, validate: bool = True, **_: Any) -> FileDataset:
        return FileDataset(*address(path))

    @staticmethod
    def upload_directory(
        src_dir: str, target: Any, pattern: str | None = None, overwrite: bool = False, **_: Any
    ) -> FileDataset:
        store, path = (target, "") if isinstance(target, Datastore) else target
        store.upload(src_dir, path, overwrite)
        return FileDataset(store.uri(path or ""))


class Tables:
    @staticmethod
    def from_delimited_files(path: Any, separator: str = ",", **_: Any) -> TabularDataset:
        return TabularDataset(*address(path), "csv", sep=separator)

    @staticmethod
    def from_json_lines_files(path: Any, **_: Any) -> TabularDataset:
        return TabularDataset(*address(path), "json", lines=True)

    @staticmethod
    def from_parquet_files(path: Any, **_: Any) -> TabularDataset:
        return TabularDataset(*address(path), "parquet")


class Dataset:
    """Data assets of the server."""

    File, Tabular = Files, Tables

    @staticmethod
    def get_by_name(workspace: object, name: str, version: str | int = "latest") -> TabularDataset:
        """Raises UserErrorException."""
        name = asset_name(name)
        label = str(version) == "latest"
        with found():
            asset = Client().data.get(name, None if label else str(version))
        made = TabularDataset(asset.path, asset.type)
        made.name, made.version = asset.name, asset.version
        return made

    @staticmethod
    def get_all(workspace: object) -> dict[str, TabularDataset]:
        return {
            each.name: Dataset.get_by_name(workspace, each.name) for each in Client().data.list()
        }

    @staticmethod
    def get_by_id(workspace: object, id: str) -> TabularDataset:
        for dataset in Dataset.get_all(workspace).values():
            if dataset.id == id:
                return dataset
        raise UserErrorException(f"no dataset with the id {id!r}", hint="use Dataset.get_by_name")


def _files(place: Path) -> list[Path]:
    """A file, or the files below a folder."""
    paths = [place] if place.is_file() else place.rglob("*")
    return sorted(each for each in paths if each.is_file())
