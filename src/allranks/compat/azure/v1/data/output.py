"""`azureml.data.OutputFileDatasetConfig`: a folder that a job writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import Bound
from allranks.compat.azure.v1.exceptions import UserErrorException, not_there
from allranks.sdk.connection import find_server
from allranks.sdk.transfer.download import download
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document


class OutputFileDatasetConfig:
    """A folder that a job writes: an argument of the job, an input of later ones."""

    def __init__(
        self,
        name: str | None = None,
        destination: Any = None,
        source: str | None = None,
        partition_format: object = None,
    ) -> None:
        if source is not None:
            not_there("OutputFileDatasetConfig(source=…)", "pass the output as an argument")
        self.name = name or f"output_{id(self):x}"
        self._destination, self._mode, self._registered = destination, "rw_mount", ""
        # The step of a pipeline that makes it.
        self.producer: Any = None

    def as_mount(self, *_: Any, **__: Any) -> OutputFileDatasetConfig:
        return self

    def as_upload(self, *_: Any, **__: Any) -> OutputFileDatasetConfig:
        self._mode = "upload"
        return self

    def register_on_complete(self, name: str, *_: Any, **__: Any) -> OutputFileDatasetConfig:
        self._registered = name
        return self

    def as_input(self, name: str | None = None) -> OutputAsInput:
        return OutputAsInput(self, name or self.name)

    def read_delimited_files(self, *_: Any, separator: str = ",", **__: Any) -> OutputAsInput:
        """As an input of tables."""
        made = self.as_input()
        made.table = {"reader": "csv", "options": {"sep": separator}}
        return made

    def data(self) -> Document:
        """The output of a job file."""
        data = {"type": "uri_folder", "mode": self._mode}
        if self._destination is not None:
            store, path = self._destination
            data["path"] = (
                store.uri(path or "")
                .replace("{run-id}", "${{name}}")
                .replace("{output-name}", "${{output_name}}")
            )
        return data | ({"name": self._registered} if self._registered else {})

    def bind(self, bound: Bound) -> str:
        return bound.output(self.name, self.data())


class OutputAsInput:
    """An output of an earlier step."""

    # As a dataset's.
    table: Document | None = None

    def __init__(self, output: OutputFileDatasetConfig, name: str) -> None:
        self.output, self.name = output, name

    def as_mount(self, *_: Any) -> OutputAsInput:
        return self

    as_download = as_mount

    def as_input(self, name: str) -> OutputAsInput:
        """The same under another name."""
        made = OutputAsInput(self.output, name)
        made.table = self.table
        return made

    as_named_input = as_input

    def bind(self, bound: Bound) -> str:
        return bound.input(self.name, reference(self.output))


class OutputData:
    """What a step has written, and where ``download`` puts it below its folder."""

    datastore_name = "workspaceblobstore"

    def __init__(self, run_id: str, name: str) -> None:
        self.name, self._job = name, run_id
        # Azure's samples use the private name, too.
        self.path_on_datastore = self._path_on_datastore = f"azureml/{run_id}/{name}"

    def get_port_data_reference(self) -> OutputData:
        return self

    def download(self, local_path: str, overwrite: bool = False, show_progress: bool = True) -> int:
        """Returns the number of files."""
        folder = Path(local_path, self.path_on_datastore)
        own = identifier(self.name)
        fetched = download(find_server.connect, self._job, folder, output=own, is_flat=True)
        return len(fetched.files)


class OutputText(OutputData):
    """One that is a file with this text."""

    def __init__(self, run_id: str, name: str, text: str) -> None:
        super().__init__(run_id, name)
        self._text = text

    def download(self, local_path: str, overwrite: bool = False, show_progress: bool = True) -> int:
        file = Path(local_path, self.path_on_datastore)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._text)
        return 1


def reference(data: Any) -> str:
    """The expression of an output of another step. Raises UserErrorException."""
    if data.producer is None:
        hint = "pass it to the step that writes it as an argument"
        raise UserErrorException(f"no step makes the data {data.name!r}", hint=hint)
    return f"${{{{parent.jobs.{data.producer.node}.outputs.{identifier(data.name)}}}}}"
