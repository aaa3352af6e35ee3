"""`azureml.core.Run` of a submitted job, and the class that scripts ask for their context."""

from __future__ import annotations

import json
import posixpath
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from allranks.agent.inside import azureml_run  # type: ignore[import-not-found, unused-ignore]
from allranks.api import routes
from allranks.compat.azure.absent import Absent
from allranks.compat.azure.notes import note
from allranks.compat.azure.v1.arguments import definition
from allranks.compat.azure.v1.data.datastore import DataPath, RunFiles
from allranks.compat.azure.v1.data.output import OutputData, OutputText
from allranks.compat.azure.v1.exceptions import (
    ActivityFailedException,
    RunEnvironmentException,
    UserErrorException,
    no_more,
    not_there,
)
from allranks.compat.azure.v1.model import SHOWN, Model
from allranks.sdk import Client, Job
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.properties import properties_of
from allranks.sdk.transfer.write_files import checked
from allranks.spec.fields.identifiers import identifier

# Files of a job that are none of the run, and those that it saved beside its script.
_OTHERS, _WORK = ("named-outputs/", "state/"), "work/"
_TABLES = "logs/azureml/rank-"
PROPERTY = azureml_run.PROPERTY
# The tag of a sweep in a pipeline: the names of outputs of the pipeline that are its metrics.
METRICS_OUTPUT = "azureml.metrics_output"


class Run(Absent):
    """A job that was submitted. ``Run.get_context()`` is that of this script."""

    type = "azureml.scriptrun"
    # `Experiment`, which its own module puts here: it makes runs.
    experiment_type: ClassVar[Any] = None

    def __init__(self, experiment: Any, run_id: str, outputs: object = None, **_: Any) -> None:
        self.experiment, self.id = experiment, run_id
        self._job: Job = Client().jobs.get(run_id)

    @classmethod
    def get_context(cls, allow_offline: bool = True, **_: Any) -> Any:
        """The run of the job that runs this script; elsewhere one that prints what it is given.
        Raises RunEnvironmentException instead of that unless ``allow_offline``."""
        try:
            return azureml_run.Run.get_context(allow_offline)
        except azureml_run.RunEnvironmentException as error:
            raise RunEnvironmentException(str(error), hint="submit the script") from None

    @staticmethod
    def get(workspace: object, run_id: str) -> Run:
        """The run of a job. Raises NotFound."""
        return run_of(Client().jobs.get(run_id), workspace)

    # ------------------------------------------------------------ what it is

    @property
    def run_id(self) -> str:
        return self.id

    @property
    def name(self) -> str:
        return str(self._job.to_dict().get("display_name") or self.id)

    display_name = name

    @property
    def status(self) -> str:
        return self.get_status()

    @property
    def number(self) -> int:
        return int(self._job.to_dict().get("number") or 1)

    @property
    def tags(self) -> dict[str, str]:
        return {key: value for key, value in self._tags().items() if not key.startswith(PROPERTY)}

    @property
    def properties(self) -> dict[str, str]:
        """Those that it was submitted with, and those added since."""
        tags = self._tags().items()
        added = {key[len(PROPERTY) :]: value for key, value in tags if key.startswith(PROPERTY)}
        return {**properties_of(self._job.to_dict()), **added}

    def _tags(self) -> dict[str, str]:
        return dict(self._job.refresh().to_dict().get("tags") or {})

    @property
    def parent(self) -> Run | None:
        name = self._job.to_dict().get("parent_job_name")
        return None if name is None else Run.get(self.experiment.workspace, name)

    def get_tags(self) -> dict[str, str]:
        return self.tags

    def get_properties(self) -> dict[str, str]:
        return self.properties

    def get_status(self) -> str:
        return str(self._job.refresh().status)

    def get_details(self) -> dict[str, Any]:
        job = self._job.refresh().to_dict()
        details = {
            "runId": self.id,
            "target": job.get("compute"),
            "status": job["status"],
            "startTimeUtc": job.get("started_at"),
            "endTimeUtc": job.get("ended_at"),
            "properties": self.properties,
            "runDefinition": definition(job),
            "logFiles": {},
        }
        return details | ({"error": {"error": job["error"]}} if job.get("error") else {})

    def _get_outputs_datapath(self) -> DataPath:
        """What it left in `outputs`, as a path; Azure's samples use this private name."""
        return DataPath(RunFiles(None, self.id), "outputs")

    def get_details_with_logs(self) -> dict[str, Any]:
        """With the text of each log."""
        logs = {name: self._text(name) for name in self.get_file_names() if "logs/" in name}
        return {**self.get_details(), "logFiles": logs}

    def get_portal_url(self) -> str:
        return self._job.studio_url

    # ------------------------------------------------------------ following it

    def wait_for_completion(
        self,
        show_output: bool = False,
        wait_post_processing: bool = False,
        raise_on_error: bool = True,
    ) -> dict[str, Any]:
        """Wait until it has ended; with ``show_output`` write what the ranks print. Raises
        ActivityFailedException if it fails, unless ``raise_on_error`` is False."""
        if show_output:
            print(f"RunId: {self.id}\nWeb View: {self.get_portal_url()}\n", flush=True)
        self._job.wait(show_output)
        details = self.get_details()
        if show_output:
            print(f"\nExecution Summary\n=================\nRunId: {self.id}", flush=True)
        if details["status"] == "Failed" and raise_on_error:
            error = self._job.error
            why = error["message"] if error else "see its logs"
            hint = error["hint"] if error else ""
            raise ActivityFailedException(
                f"the job {self.id} failed: {why}", hint=hint or "see its logs"
            )
        return details

    def cancel(self) -> None:
        self._job.cancel()

    def restore_snapshot(self, snapshot_id: str | None = None, path: str | None = None) -> str:
        """Write the job's code into a ZIP file in a folder; returns its path. Links stay out."""
        target = Path(path or ".", f"{self.id}.zip")
        target.parent.mkdir(parents=True, exist_ok=True)
        with find_server.connect() as client, zipfile.ZipFile(target, "w") as archive:
            for file in client.ask(routes.job_code, self.id):
                if file["link"] is None:
                    content = client.call(*routes.job_code_file.at(self.id, file["path"])).body
                    archive.writestr(checked(file["path"]), content)
        return str(target)

    def fail(self, error_details: Any = None, error_code: str | None = None, **_: Any) -> None:
        """Cancel the job: only its own command can fail."""
        note(f"{self.id} is canceled: the status Failed is that of a command which has failed")
        self.cancel()

    def get_children(self, recursive: bool = False, **_: Any) -> Iterator[Run]:
        """The runs of a sweep's trials or a pipeline's steps, the newest first."""
        for name in reversed(children(self._job.refresh())):
            yield Run.get(self.experiment.workspace, name)

    # ------------------------------------------------------------ what it has left

    def get_metrics(
        self, name: str | None = None, recursive: bool = False, **_: Any
    ) -> dict[str, Any]:
        """What it has logged, by name: a value, or a list of several; rows and tables as
        mappings."""
        tables = self._tables()
        of_tables = {
            f"{key}/{column}" for key, (_, columns) in tables.items() for column in columns
        }
        metrics: dict[str, Any] = {}
        for key, points in self._job.metrics().items():
            values = [point["value"] for point in points]
            if key not in of_tables:
                metrics[key] = values[0] if len(values) == 1 else values
        metrics |= {key: value for key, (value, _) in tables.items()}
        return metrics if name is None else {key: metrics[key] for key in metrics if key == name}

    def _tables(self) -> dict[str, tuple[Any, Sequence[str]]]:
        """What is no number, by name, with its columns."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for file in self.get_file_names():
            if file.startswith(_TABLES):
                for line in self._text(file).splitlines():
                    kept = json.loads(line)
                    rows.setdefault(kept.pop("name"), []).append(kept)
        return {name: _table(several) for name, several in rows.items()}

    def get_file_names(self) -> list[str]:
        """Files in `outputs` and `logs`, and those saved beside the script."""
        return sorted(self._files())

    def download_file(self, name: str, output_file_path: str | None = None, **_: Any) -> None:
        """To ``output_file_path``, a file or a folder; else here. Raises UserErrorException."""
        target = Path(output_file_path or Path(name).name)
        if target.is_dir() or str(output_file_path or "").endswith("/"):
            target /= Path(name).name
        with tempfile.TemporaryDirectory() as folder:
            downloaded = self._downloaded(name, folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(downloaded, target)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: Sequence[str] | None = None,
        append_prefix: bool = True,
        **_: Any,
    ) -> None:
        for name in self.get_file_names():
            if name.startswith(prefix or ""):
                own = name if append_prefix else name[len(prefix or "") :].lstrip("/")
                self.download_file(name, str(Path(output_directory or ".", checked(own))))

    def get_all_logs(self, destination: str | None = None) -> list[str]:
        folder = destination or "."
        names = [checked(each) for each in self.get_file_names() if "logs/" in each]
        for name in names:
            self.download_file(name, str(Path(folder, name)))
        return [str(Path(folder, each)) for each in names]

    def get_output_data(self, name: str) -> OutputData:
        """An output of the step, by the name of its `PipelineData` or configuration."""
        return OutputData(self.id, name)

    def get_outputs(self) -> dict[str, OutputData]:
        """All outputs of the step."""
        return {name: OutputData(self.id, name) for name in self._job.outputs}

    def get_job_log(self) -> str:
        """What its ranks have printed."""
        return "".join(self._text(name) for name in self.get_file_names() if "logs/" in name)

    def register_model(
        self,
        model_name: str,
        model_path: str | None = None,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        **more: Any,
    ) -> Model:
        """Register files of the job as a version of a model."""
        no_more("register_model", more, SHOWN)
        path = posixpath.normpath(model_path or model_name)
        if path not in ("outputs", "logs") and not path.startswith(("outputs/", "logs/")):
            path = f"work/{path}"
        made = Client().models.register(
            model_name, path, job=self.id, tags=tags, properties=properties, description=description
        )
        return Model(getattr(self.experiment, "workspace", None), model_name, version=made.version)

    def tag(self, key: str, value: str | None = None) -> None:
        self.set_tags({key: value or ""})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        Client().jobs.tag(self.id, {key: str(each) for key, each in tags.items()})

    def add_properties(self, properties: Mapping[str, Any]) -> None:
        """Add properties, which do not change any more. Raises UserErrorException for one that has
        another value."""
        if changed := azureml_run.changed_property(self.properties, properties):
            raise UserErrorException(changed, hint="use run.tag: tags may change")
        self.set_tags({f"{PROPERTY}{key}": value for key, value in properties.items()})

    def remove_tags(self, tags: Sequence[str] | str) -> None:
        Client().jobs.tag(self.id, remove=[tags] if isinstance(tags, str) else tags)

    def log(self, *_: Any, **__: Any) -> None:
        """Raises NotThere: jobs log from inside."""
        not_there("logging to a job from outside", "use Run.get_context() in its script")

    def _downloaded(self, name: str, folder: str) -> Path:
        files = self._files()
        if name not in files:
            hint = "run.get_file_names() lists them"
            raise UserErrorException(f"the job {self.id} has no file {name!r}", hint=hint)
        return Client().jobs.download(self.id, folder, path=files[name])

    def _files(self) -> dict[str, str]:
        """The path of each file in the record, by Azure's."""
        paths = (file.path for file in Client().jobs.files(self.id))
        return {path.removeprefix(_WORK): path for path in paths if not path.startswith(_OTHERS)}

    def _text(self, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return self._downloaded(name, folder).read_text(errors="replace")

    def __repr__(self) -> str:
        experiment = getattr(self.experiment, "name", "")
        return f"Run(Experiment: {experiment}, Id: {self.id}, Status: {self.get_status()})"

    def _repr_html_(self) -> str:
        return self._job._repr_html_()


class HyperDriveRun(Run):
    """A sweep that was submitted."""

    type = "hyperdrive"

    def get_best_run_by_primary_metric(self, **_: Any) -> Run | None:
        """The best trial; None before one has reported the metric."""
        best = self._job.refresh().to_dict().get("best")
        return None if not best else Run(self.experiment, best["job"])

    def get_children_sorted_by_primary_metric(
        self, top: int = 0, reverse: bool = False, discard_no_metric: bool = False
    ) -> list[dict[str, Any]]:
        """The trials, the best first; of each its run id, parameters, metric and status."""
        trials = [
            {
                "run_id": trial["job"],
                "hyperparameters": trial["parameters"],
                "best_primary_metric": trial["value"],
                "status": trial["status"],
            }
            for trial in self._job.refresh().to_dict()["trials"]
            if not (discard_no_metric and trial["value"] is None)
        ]
        ordered = trials[::-1] if reverse else trials
        return ordered[:top] if top else ordered

    def get_hyperparameters(self) -> dict[str, Any]:
        """The parameters of each trial, by its run id."""
        return {e["job"]: e["parameters"] for e in self._job.refresh().to_dict()["trials"]}

    def get_metrics(
        self, name: str | None = None, recursive: bool = False, **_: Any
    ) -> dict[str, Any]:
        """What each trial has logged, by its run id."""
        return {child.id: child.get_metrics(name) for child in self.get_children()}

    def metrics_text(self) -> str:
        """The metrics of each trial as Azure's files have them: lists, by run id and name."""
        metrics = self.get_metrics().items()
        listed = {
            run: {key: value if isinstance(value, list) else [value] for key, value in own.items()}
            for run, own in metrics
        }
        return json.dumps(listed)

    def get_runs_by_hyperparameters(self, parameters: Mapping[str, Any]) -> Iterator[Run]:
        for trial, values in self.get_hyperparameters().items():
            if all(
                str(values.get(identifier(key))) == str(each) for key, each in parameters.items()
            ):
                yield Run(self.experiment, trial)


class HyperDriveStepRun(HyperDriveRun):
    """The sweep of a pipeline's step."""

    def __init__(self, step_run: Run) -> None:
        super().__init__(step_run.experiment, step_run.id)


class PipelineRun(Run):
    """A pipeline that was submitted."""

    type = "azureml.PipelineRun"
    # `PublishedPipeline`, as above.
    published_type: ClassVar[Any] = None

    def get_steps(self) -> Iterable[Run]:
        return self.get_children()

    def find_step_run(self, name: str) -> list[Run]:
        """The runs of the steps with this name."""
        return [child for child in self.get_children() if child.name == name]

    def get_pipeline_output(self, pipeline_output_name: str) -> OutputData:
        """An output of the pipeline or of a step, by its name."""
        own, outputs = identifier(pipeline_output_name), set[str]()
        if own in self._job.outputs:
            return self.get_output_data(pipeline_output_name)
        for step in self.get_children():
            is_metrics = pipeline_output_name in step.tags.get(METRICS_OUTPUT, "").split()
            if is_metrics and isinstance(step, HyperDriveRun):
                return OutputText(self.id, pipeline_output_name, step.metrics_text())
            if own in step._job.outputs:
                return step.get_output_data(pipeline_output_name)
            outputs |= step._job.outputs.keys()
        message = f"no step of {self.id} has an output {pipeline_output_name!r}"
        hint = f"its outputs are: {', '.join(sorted(outputs)) or 'none'}"
        raise UserErrorException(message, hint=hint)

    def publish_pipeline(
        self,
        name: str,
        description: str | None = None,
        version: str | None = None,
        continue_on_step_failure: bool | None = None,
        **more: Any,
    ) -> Any:
        """Keep the pipeline of this run: a `PublishedPipeline`."""
        no_more("publish_pipeline", more)
        spec = self._job.to_dict()["spec"]
        job = {key: spec[key] for key in ("type", "inputs", "jobs", "settings") if key in spec}
        if continue_on_step_failure is not None:
            failing = {"continue_on_step_failure": continue_on_step_failure}
            job["settings"] = {**job.get("settings", {}), **failing}
        workspace = self.experiment.workspace
        return self.published_type.make(workspace, job, name, description, version)


_KINDS: Mapping[str, type[Run]] = {"sweep": HyperDriveRun, "pipeline": PipelineRun}


def run_of(job: Job, workspace: object, experiment: Any = None) -> Run:
    """The run of a job, as the class of its type."""
    named = experiment or Run.experiment_type(workspace, str(job.experiment_name or "Default"))
    return _KINDS.get(str(job.to_dict().get("type")), Run)(named, job.name)


def children(job: Job) -> list[str]:
    """The names of a parent's jobs."""
    record = job.to_dict()
    if record.get("type") == "sweep":
        return [trial["job"] for trial in record.get("trials") or () if trial.get("job")]
    return [step["job"] for step in (record.get("steps") or {}).values() if step.get("job")]


def _table(several: Sequence[Mapping[str, Any]]) -> tuple[Any, Sequence[str]]:
    """The value of what was logged under one name, and its columns."""
    kinds = {key for each in several for key in each}
    if kinds == {"row"}:
        rows = [each["row"] for each in several]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        if len(rows) == 1:
            return rows[0], columns
        return {key: [row.get(key) for row in rows] for key in columns}, columns
    values = [next(iter(each.values())) for each in several]
    columns = [key for value in values if isinstance(value, Mapping) for key in value]
    return values[0] if len(values) == 1 else values, columns
