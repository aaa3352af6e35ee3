"""`simple_sagemaker.sm_project`: projects and tasks of Python programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.sdk import Client
from allranks.ssm import results
from allranks.ssm.parser import arguments_of
from allranks.ssm.task import REPLICATED, Channel, Request, Task


class SageMakerTask:
    """A task of a project."""

    def __init__(self, project: str, name: str, prefix: str = "") -> None:
        self._task = Task(project, name, prefix)

    def getOutputTargetUri(self, **kind: bool) -> Channel:  # simple-sagemaker's name
        """What the task left: ``model=True``, ``output=True``, ``state=True`` or
        ``source=True``."""
        (wanted,) = (name for name, is_wanted in kind.items() if is_wanted)
        return self._task.as_input(wanted)

    def getInputConfig(  # as above
        self, input_type: str, distribution: str = REPLICATED, subdir: str = "", **_: Any
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
        given = {"state": state, "model": model, "output": output}
        wanted = [name for name, is_wanted in given.items() if is_wanted]
        results.download(self._task, self._task.completed(), Path(path), wanted)

    def clean_state(self) -> None:
        self._task.clean()


class SageMakerProject:
    """Tasks that belong together. ``bucket_name``, roles and regions have no effect."""

    def __init__(
        self,
        project_name: str,
        boto3_session: object = None,
        aws_region_name: str | None = None,
        aws_profile_name: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        smSession: object = None,  # simple-sagemaker's name
        bucket_name: str | None = None,
        smBucketPrefix: str = "",  # as above
        prefix: str = "",
        local_mode: bool = False,
        **_: Any,
    ) -> None:
        self.project_name, self.prefix = project_name, prefix
        self.local_mode = local_mode
        self.tasks: dict[str, SageMakerTask] = {}
        self._image: dict[str, Any] = {}
        self._code: dict[str, Any] = {}
        self._instances: dict[str, Any] = {}

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
        source = str(source_dir or "")
        entry = str(Path(source, entry_point)) if source else str(entry_point)
        files = [str(each) for each in dependencies or ()]
        self._code = {"source": source, "entry": entry, "files": files}

    def setDefaultInstanceParams(  # as above
        self,
        instance_type: str = "",
        instance_count: int = 1,
        volume_size: int = 30,
        use_spot_instances: bool = True,
        max_run_mins: float = 1440,
        max_wait_mins: float = 0,
    ) -> None:
        self._instances = {
            "instance_type": instance_type,
            "instance_count": instance_count,
            "spot": use_spot_instances,
            "minutes": max_run_mins,
        }

    @property
    def defaultInstanceParams(self) -> Any:  # as above
        """The instances of its tasks, as attributes."""
        return type("InstanceParams", (), {"instance_type": "", **self._instances})()

    def buildOrGetImage(self, *_: Any, **__: Any) -> str:  # as above
        """Nothing is built before a task runs."""
        return "the environment of the task"

    def allowAccessToS3Bucket(self, bucket: str) -> None:  # as above
        """Nodes use their own credentials: `allranks datastore create`."""

    def runTask(  # as above
        self,
        task_name: str,
        image_uri: str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        input_data_path: str | Path | None = None,
        clean_state: bool = False,
        output_path: str | None = None,
        additional_inputs: Mapping[str, Channel] | None = None,
        model_uri: Any = None,
        input_distribution: str = REPLICATED,
        metric_definitions: Mapping[str, str] | None = None,
        distribution: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        force_running: bool = False,
        **_: Any,
    ) -> str:
        """Run a task to its end, unless it was completed and its state is kept. Returns the job's
        name. Raises RuntimeError if it fails."""
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
            return last.name
        request = Request(
            kind="run",
            arguments=arguments_of(hps),
            hps=hps,
            channels=channels,
            metrics=dict(metric_definitions or {}),
            tags=dict(tags or {}),
            distribution=distribution,
            clean_state=clean_state,
            **self._code,
            **self._instances,
            **self._image,
        )
        job = Client().jobs.stream(task._task.submit(request).name)
        if job.status != "Completed":
            raise RuntimeError(f"the task {task_name} failed: {(job.error or {}).get('message')}")
        return job.name

    def getInputConfig(  # as above
        self,
        task_name: str,
        input_type: str,
        distribution: str = REPLICATED,
        subdir: str = "",
        **_: Any,
    ) -> Channel:
        """What a completed task left, for ``additional_inputs``."""
        return Task(self.project_name, task_name, self.prefix).as_input(
            input_type, distribution, subdir
        )

    def downloadResults(  # as above
        self, task_name: str, path: str | Path, **wanted: bool
    ) -> None:
        """Write what a completed task has left below ``path``."""
        SageMakerTask(self.project_name, task_name, self.prefix).downloadResults(path, **wanted)

    def cleanState(self, task_name: str) -> None:  # as above
        Task(self.project_name, task_name, self.prefix).clean()
