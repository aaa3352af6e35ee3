"""`simple_sagemaker.sm_project`: projects and tasks of Python programs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.compat.ssm import download_results
from allranks.compat.ssm.parser import arguments_of
from allranks.compat.ssm.task import REPLICATED, Channel, Request, Task, volume_note
from allranks.errors import UsageError
from allranks.sdk import Client
from allranks.sdk.jobs.follow import submission_notes
from allranks.spec.fields.problems import nearest

if TYPE_CHECKING:
    from allranks.api.common import Document

_CODE = ("source_dir", "entry_point", "dependencies")
_INSTANCES = (
    "instance_type",
    "instance_count",
    "volume_size",
    "use_spot_instances",
    "max_run_mins",
    "max_wait_mins",
)
_TRAINING = "Training"


class SageMakerTask:
    """A task of a project."""

    def __init__(self, project: str, name: str, prefix: str = "") -> None:
        self._task = Task(project, name, prefix)

    def getOutputTargetUri(self, **kind: bool) -> Channel:  # simple-sagemaker's name
        """What the task left: ``model=True``, ``output=True``, ``state=True`` or
        ``source=True``."""
        (chosen,) = (name for name, is_wanted in kind.items() if is_wanted)
        return self._task.as_input(chosen)

    def getInputConfig(  # as above
        self,
        input_type: str,
        distribution: str = REPLICATED,
        subdir: str = "",
        return_s3uri: bool = False,
    ) -> Channel:
        return self._task.as_input(input_type, distribution, subdir)

    def downloadResults(  # as above
        self,
        path: str | Path,
        logs: bool = True,
        state: bool = True,
        model: bool = True,
        output: bool = True,
        source: bool = False,
    ) -> None:
        """Write what the task has left below ``path``."""
        flags = {"state": state, "model": model, "output": output}
        kinds = [name for name, is_wanted in flags.items() if is_wanted]
        download_results.download(self._task, self._task.completed(), Path(path), kinds)

    def clean_state(self) -> None:
        self._task.clean()


@dataclasses.dataclass
class InstanceParams:
    """The instances of a project's tasks."""

    instance_type: str = ""
    instance_count: int = 1
    volume_size: int = 30
    use_spot_instances: bool = True
    max_run_mins: float = 1440
    max_wait_mins: float = 0


class SageMakerProject:
    """Tasks that belong together. ``bucket_name``, roles and regions have no effect."""

    def __init__(
        self,
        project_name: str,
        boto3_session: object = None,
        role_name: str | None = None,
        bucket_name: str | None = None,
        smSession: object = None,  # simple-sagemaker's name
        local_mode: bool = False,
        prefix: str | None = None,
    ) -> None:
        self.project_name, self.prefix = project_name, prefix or ""
        self.local_mode = local_mode
        self.tasks: dict[str, SageMakerTask] = {}
        self._image: Document = {}
        self._code: Document = {}
        self._instances: Document = {}

    def setDefaultImageParams(  # as above
        self,
        aws_repo_name: str | None = None,
        repo_name: str | None = None,
        image_tag: str | None = None,
        docker_file_path_or_content: str | None = None,
        framework: str | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
    ) -> None:
        dockerfile = docker_file_path_or_content or ""
        self._image = {"dockerfile": dockerfile, "framework": framework or ""}

    def setDefaultCodeParams(  # as above
        self,
        source_dir: str | None = None,
        entry_point: str = "",
        dependencies: Sequence[str] | None = None,
    ) -> None:
        self._code = _given(_CODE, locals())

    def setDefaultInstanceParams(  # as above
        self,
        instance_type: str = "",
        instance_count: int = 1,
        volume_size: int = 30,
        use_spot_instances: bool = True,
        max_run_mins: float = 1440,
        max_wait_mins: float = 0,
    ) -> None:
        self._instances = _given(_INSTANCES, locals())

    @property
    def defaultInstanceParams(self) -> InstanceParams:  # as above
        """The instances of its tasks."""
        return InstanceParams(**self._instances)

    def buildOrGetImage(self, instance_type: str = "", **image: Any) -> str:  # as above
        """Nothing is built before a task runs. ``image`` replaces the default image params."""
        if image:
            self.setDefaultImageParams(**image)
        return "the environment of the task"

    def allowAccessToS3Bucket(  # as above
        self, bucket_name: str, policy_name: str | None = None
    ) -> None:
        """Nodes use their own credentials: `allranks datastore create`."""

    def runTask(  # as above
        self,
        task_name: str,
        image_uri: str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        input_data_path: str | Path | None = None,
        clean_state: bool = False,
        force_running: bool = False,
        tags: Mapping[str, str] | None = None,
        metric_definitions: Mapping[str, str] | None = None,
        enable_sagemaker_metrics: bool = False,
        task_type: str = _TRAINING,
        *,
        additional_inputs: Mapping[str, Channel] | None = None,
        model_uri: Any = None,
        input_distribution: str = REPLICATED,
        distribution: Mapping[str, Any] | None = None,
        **instead: Any,
    ) -> tuple[SageMakerTask, str]:
        """Run a task to its end, unless it was completed and its state is kept. ``instead``
        replaces default code and instance params. Returns the task and its job's name. Raises
        RuntimeError if it fails."""
        _check(task_type, instead)
        hps = dict(hyperparameters or {})
        task = self.tasks.setdefault(
            task_name, SageMakerTask(self.project_name, task_name, self.prefix)
        )
        channels = dict(additional_inputs or {})
        if input_data_path:
            channels["data"] = Channel(str(input_data_path), input_distribution)
        if model_uri:
            channels["model"] = (
                model_uri if isinstance(model_uri, Channel) else Channel(str(model_uri))
            )
        last = task._task.last()
        if last is not None and last.status == "Completed" and not (clean_state or force_running):
            return task, last.name
        request = Request(
            kind="run",
            arguments=arguments_of(hps),
            hps=hps,
            channels=channels,
            metrics=dict(metric_definitions or {}),
            tags=dict(tags or {}),
            distribution=distribution,
            clean_state=clean_state,
            **_code(self._code | instead),
            **_instances(self._instances | instead),
            **self._image,
        )
        job = task._task.submit(request)
        submission_notes(job.to_dict(), sys.stderr)
        if note := volume_note(job, (self._instances | instead).get("volume_size")):
            print(note, file=sys.stderr, flush=True)
        job = Client().jobs.stream(job.name)
        if job.status != "Completed":
            why = job.error["message"] if job.error else job.status
            hint = f"hint: allranks job explain {job.name}"
            raise RuntimeError(f"the task {task_name} failed: {why}\n{hint}")
        return task, job.name

    def getInputConfig(  # as above
        self,
        task_name: str,
        input_type: str,
        distribution: str = REPLICATED,
        subdir: str = "",
        return_s3uri: bool = False,
    ) -> Channel:
        """What a completed task left, for ``additional_inputs``."""
        return Task(self.project_name, task_name, self.prefix).as_input(
            input_type, distribution, subdir
        )

    def downloadResults(  # as above
        self, task_name: str, path: str | Path, **kinds: bool
    ) -> None:
        """Write what a completed task has left below ``path``."""
        SageMakerTask(self.project_name, task_name, self.prefix).downloadResults(path, **kinds)

    def cleanState(self, task_name: str) -> None:  # as above
        Task(self.project_name, task_name, self.prefix).clean()


def _given(names: Sequence[str], values: Mapping[str, Any]) -> Document:
    return {name: values[name] for name in names}


def _check(task_type: str, instead: Mapping[str, Any]) -> None:
    """Raise UsageError for what `runTask` would ignore."""
    if task_type != _TRAINING:
        raise UsageError(f"runTask runs no {task_type} task", hint="use `allranks ssm process`")
    names = (*_CODE, *_INSTANCES)
    for name in instead:
        if name not in names:
            hint = nearest(name, names) or f"known are {', '.join(names)}"
            raise UsageError(f"{name} is not a parameter of runTask", hint=hint)


def _code(keywords: Mapping[str, Any]) -> Document:
    source = str(keywords.get("source_dir") or "")
    entry = str(keywords.get("entry_point") or "")
    files = [str(dependency) for dependency in keywords.get("dependencies") or ()]
    path = str(Path(source, entry)) if source else entry
    return {"source": source, "entry": path, "files": files}


def _instances(keywords: Mapping[str, Any]) -> Document:
    return {
        "instance_type": keywords.get("instance_type") or "",
        "instance_count": keywords.get("instance_count", 1),
        "spot": keywords.get("use_spot_instances", True),
        "minutes": keywords.get("max_run_mins", 1440),
    }
