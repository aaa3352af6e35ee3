"""`azureml.core.Datastore`: a datastore of the server, and paths on it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.compat.azure.v1.arguments import REFERENCE, Bound
from allranks.compat.azure.v1.data.output import OutputData
from allranks.compat.azure.v1.exceptions import found, not_there
from allranks.sdk import Client
from allranks.spec import datastore as datastore_spec

if TYPE_CHECKING:
    from allranks.api.common import Document

MODES = {"mount": "ro_mount", "download": "download", "direct": "direct"}
# Where Azure puts the outputs of jobs, and ``OutputData`` says that they are.
_OF_JOB = re.compile(r"/?azureml/([^/]+)/([^/]+)/?")
_DEFAULT = ("workspaceblobstore", "workspacefilestore", "default")


class DataPath(NamedTuple):
    """A path on a datastore."""

    datastore: Datastore
    path_on_datastore: str = ""

    def create_data_reference(
        self,
        data_reference_name: str | None = None,
        datapath_compute_binding: DataPathComputeBinding | None = None,
    ) -> DataReference:
        mode = (datapath_compute_binding or DataPathComputeBinding()).mode
        return DataReference(self.datastore, data_reference_name, self.path_on_datastore, mode)

    def data(self) -> Document:
        return self.create_data_reference().data()


class DataPathComputeBinding:
    """How a path is consumed: ``mode`` is `mount` or `download`."""

    def __init__(self, mode: str = "mount", **_: Any) -> None:
        self.mode = mode


class Datastore:
    """A datastore of the server. Raises NotFound."""

    def __init__(self, workspace: object = None, name: str = "workspaceblobstore") -> None:
        self.workspace, self.name = workspace, name

    @property
    def datastore_type(self) -> str:
        """Azure's word for a container of blobs, which the default one stands for; else ours."""
        kind = "azure_blob" if self.name in _DEFAULT else Client().datastores.get(self.name).type
        return "AzureBlob" if kind == "azure_blob" else str(kind)

    @property
    def account_name(self) -> str:
        """The name of the storage account; empty for a store outside Azure."""
        return self._key("account_name")

    @property
    def container_name(self) -> str:
        """The name of the container; empty for a store outside Azure."""
        return self._key("container_name")

    def _key(self, key: str) -> str:
        if self.name in _DEFAULT:
            return ""
        return str(getattr(Client().datastores.get(self.name), key, None) or "")

    @classmethod
    def get(cls, workspace: object, datastore_name: str) -> Datastore:
        if datastore_name not in _DEFAULT:
            with found():
                Client().datastores.get(datastore_name)
        return cls(workspace, datastore_name)

    @classmethod
    def get_default(cls, workspace: object) -> Datastore:
        return cls(workspace)

    @classmethod
    def register_azure_blob_container(
        cls,
        workspace: object,
        datastore_name: str,
        container_name: str,
        account_name: str,
        sas_token: str | None = None,
        account_key: str | None = None,
        protocol: str | None = None,
        endpoint: str | None = None,
        **_: Any,
    ) -> Datastore:
        keys = {"container_name": container_name, "account_name": account_name}
        optional = {"protocol": protocol, "endpoint": endpoint}
        made = datastore_spec.Datastore.model_validate(
            {"name": datastore_name, "type": "azure_blob", **keys}
            | {key: each for key, each in optional.items() if each}
        )
        secrets = {"sas_token": sas_token, "account_key": account_key}
        Client().datastores.create_or_update(made, {k: v for k, v in secrets.items() if v})
        return cls(workspace, datastore_name)

    def uri(self, path: str = "") -> str:
        return f"azureml://datastores/{self.name}/paths/{path.lstrip('/')}"

    def path(self, path: str | None = None, **_: Any) -> DataReference:
        return DataReference(self, path_on_datastore=path or "")

    def as_mount(self) -> DataReference:
        return self.path().as_mount()

    def as_download(self, path_on_compute: str | None = None) -> DataReference:
        return self.path().as_download()

    def upload(
        self,
        src_dir: str,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataReference:
        """Copy a folder to the datastore, which must be a folder of this machine."""
        for file in sorted(path for path in Path(src_dir).rglob("*") if path.is_file()):
            self._copy(file, Path(target_path or "", file.relative_to(src_dir)), overwrite)
        return self.path(target_path)

    def upload_files(
        self,
        files: Sequence[str],
        relative_root: str | None = None,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataReference:
        for file in map(Path, files):
            own = file.relative_to(relative_root) if relative_root else Path(file.name)
            self._copy(file, Path(target_path or "", own), overwrite)
        return self.path(target_path)

    def download(
        self, target_path: str, prefix: str | None = None, overwrite: bool = False, **_: Any
    ) -> int:
        """Copy files from the datastore; returns how many. ``prefix``: a folder or a file, the
        beginning of such a path, or the place of a job's output."""
        start = self.folder / (prefix or "").lstrip("/")
        if (of_job := _OF_JOB.fullmatch(prefix or "")) and not start.exists():
            return OutputData(*of_job.groups()).download(target_path)
        if start.exists():
            below = [start] if start.is_file() else sorted(start.rglob("*"))
        else:
            below = [path for path in start.parent.rglob("*") if str(path).startswith(str(start))]
        files = [path for path in sorted(below) if path.is_file()]
        for file in files:
            copied(file, Path(target_path, file.relative_to(self.folder)), overwrite)
        return len(files)

    @property
    def folder(self) -> Path:
        """The folder of this machine that it is. Raises NotThere for a remote store."""
        store = Client().datastores.get(self.name)
        if store.path is None:
            hint = "put the files there with the store's own tool"
            not_there(f"copying to and from a datastore of type {store.type}", hint)
        return Path(store.path)

    def _copy(self, source: Path, own: Path, overwrite: bool) -> None:
        copied(source, self.folder / own, overwrite)

    def __repr__(self) -> str:
        return f"Datastore(name={self.name})"


class RunFiles(Datastore):
    """The files of the job ``name``."""

    def uri(self, path: str = "") -> str:
        return f"azureml://jobs/{self.name}/outputs/artifacts/paths/{path.lstrip('/')}"


class DataReference:
    """A path of a datastore, as an argument or in ``inputs`` of a step."""

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        mode: str = "mount",
        path_on_compute: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.datastore, self.mode = datastore, mode
        self.path_on_datastore = path_on_datastore or ""
        name = data_reference_name or f"{datastore.name}_{self.path_on_datastore}"
        self.name = re.sub(r"\W+", "_", name).strip("_")
        self.data_reference_name = self.name

    def as_mount(self) -> DataReference:
        return DataReference(self.datastore, self.name, self.path_on_datastore, "mount")

    def as_download(self, path_on_compute: str | None = None, **_: Any) -> DataReference:
        return DataReference(self.datastore, self.name, self.path_on_datastore, "download")

    def data(self) -> Document:
        path = self.datastore.uri(self.path_on_datastore)
        return {"type": "uri_folder", "path": path, "mode": MODES[self.mode]}

    def bind(self, bound: Bound) -> str:
        return bound.input(self.name, self.data())

    def to_config(self) -> DataReference:
        """For ``RunConfiguration.data_references``."""
        return self

    def __str__(self) -> str:
        """What stands for it in text, once it is one of the data references."""
        return f"{REFERENCE}{self.name}"


def copied(source: Path, target: Path, overwrite: bool) -> Path:
    if overwrite or not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return target
