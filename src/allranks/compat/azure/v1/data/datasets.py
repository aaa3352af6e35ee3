"""`azureml.core.Dataset`, `azureml.data`: data as inputs of jobs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
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


# The property of a data asset that says how it is read, and the keys in a format of paths.
_HOW, _READERS = "azureml.dataset", ("csv", "json", "parquet")
_KEY = re.compile(r"\{([^}:]+)\}")


class FileDataset:
    """Files at one address."""

    type = "uri_folder"
    # How the rows are read: the name of a reader of pandas and its options.
    table: Document | None = None

    def __init__(
        self, path: str, type: str = "uri_folder", partition_format: str | None = None
    ) -> None:
        self.path, self.type, self.partition_format = path, type, partition_format
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
            {"name": name, "path": self.path, "type": self.type, "properties": self._how_read()}
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
        return [f"/{file.relative_to(folder).as_posix()}" for file in _files(folder)]

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

    def _how_read(self) -> dict[str, str]:
        """What another program needs beside the path, as properties of the data asset."""
        how = {"table": self.table, "partition_format": self.partition_format}
        return {_HOW: json.dumps(how)} if any(how.values()) else {}

    @property
    def partition_keys(self) -> list[str]:
        return _KEY.findall(self.partition_format or "")

    def partition(self, keys: Sequence[str]) -> Document:
        """How a path's values of the keys are found. Raises UserErrorException."""
        for key in keys:
            if key not in self.partition_keys:
                hint = f"the keys of its partition_format: {', '.join(self.partition_keys) or '-'}"
                raise UserErrorException(f"the dataset has no partition key {key!r}", hint=hint)
        # Folders above the first key are those of the datastore.
        above, _, rest = (self.partition_format or "").partition("{")
        own = above.rpartition("/")[2] + "{" + rest
        parts = ["([^/]+)" if n % 2 else re.escape(part) for n, part in enumerate(_KEY.split(own))]
        pattern = f"/{''.join(parts)}$"
        return {"pattern": pattern, "names": self.partition_keys, "keys": [*keys]}

    def __repr__(self) -> str:
        return f"FileDataset(path={self.path!r}, name={self.name!r}, version={self.version!r})"


class TabularDataset(FileDataset):
    """Tables in files at one address. Jobs get the files, parallel steps data frames."""

    def to_pandas_dataframe(self, **_: Any) -> Any:
        """All rows. Needs pandas."""
        import pandas  # type: ignore[import-untyped] # lazy: the program's own

        table = self.table or {"reader": "csv", "options": {}}
        read = getattr(pandas, f"read_{table['reader']}")
        several = [read(file, **table["options"]) for file in _files(self._folder())]
        return pandas.concat(several, ignore_index=True)

    def partition_by(
        self,
        partition_keys: Sequence[str],
        target: Any,
        name: str | None = None,
        show_progress: bool = True,
        partition_as_file_dataset: bool = False,
    ) -> FileDataset:
        """Copy the rows to a folder of a datastore, those with equal keys to one file. Needs
        pandas."""
        store, path = (target, "") if isinstance(target, Datastore) else target
        for values, rows in self.to_pandas_dataframe().groupby([*partition_keys]):
            names = [str(value).replace("/", "_") for value in values]
            file = store.folder.joinpath(path, *names, "rows.csv")
            file.parent.mkdir(parents=True, exist_ok=True)
            rows.to_csv(file, index=False)
        text = "/".join([*(f"{{{key}}}" for key in partition_keys), "rows.csv"])
        make = Files.from_files if partition_as_file_dataset else Tables.from_delimited_files
        made = make((store, path), partition_format=text)
        return made if name is None else made.register(None, name)

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
    def from_files(
        path: Any, validate: bool = True, partition_format: str | None = None, **_: Any
    ) -> FileDataset:
        return FileDataset(*address(path), partition_format)

    @staticmethod
    def upload_directory(
        src_dir: str, target: Any, pattern: str | None = None, overwrite: bool = False, **_: Any
    ) -> FileDataset:
        store, path = (target, "") if isinstance(target, Datastore) else target
        store.upload(src_dir, path, overwrite)
        return FileDataset(store.uri(path or ""))


class Tables:
    @staticmethod
    def from_delimited_files(
        path: Any, separator: str = ",", partition_format: str | None = None, **_: Any
    ) -> TabularDataset:
        return _table(path, partition_format, "csv", sep=separator)

    @staticmethod
    def from_json_lines_files(
        path: Any, partition_format: str | None = None, **_: Any
    ) -> TabularDataset:
        return _table(path, partition_format, "json", lines=True)

    @staticmethod
    def from_parquet_files(
        path: Any, partition_format: str | None = None, **_: Any
    ) -> TabularDataset:
        return _table(path, partition_format, "parquet")


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
        table, partition_format = how_read(asset.properties)
        made = TabularDataset(asset.path, asset.type, partition_format)
        made.table = table
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


def how_read(properties: Mapping[str, str]) -> tuple[Document | None, str | None]:
    """What ``register`` kept of a dataset: its table and its format of paths. Others may write
    properties, too, and some readers of pandas run what they read."""
    try:
        how = json.loads(properties.get(_HOW, "{}"))
        table, partition_format = how.get("table"), how.get("partition_format")
        is_plain = table is not None and table["reader"] in _READERS
        made = {"reader": table["reader"], "options": dict(table["options"])} if is_plain else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, None
    return made, partition_format


def _table(path: Any, partition_format: str | None, reader: str, **options: Any) -> TabularDataset:
    made = TabularDataset(*address(path), partition_format)
    made.table = {"reader": reader, "options": options}
    return made


def _files(place: Path) -> list[Path]:
    """A file, or the files below a folder."""
    paths = [place] if place.is_file() else place.rglob("*")
    return sorted(path for path in paths if path.is_file())
