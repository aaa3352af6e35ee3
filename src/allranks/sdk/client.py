"""A client of the server for Python programs and notebooks."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, Unpack, overload

from allranks.api import routes
from allranks.core.insights.rehearsal import TOLERANCE
from allranks.core.job.file_addresses import JobFile, downloaded_as
from allranks.core.text import one_line
from allranks.errors import UsageError
from allranks.sdk.assets.batch import BatchDeployments, BatchEndpointRecord, BatchEndpoints
from allranks.sdk.assets.computes import Computes, Poller
from allranks.sdk.assets.data import DataAssets, Datastores
from allranks.sdk.assets.endpoints import (
    DeploymentRecord,
    EndpointRecord,
    OnlineDeployments,
    OnlineEndpoints,
)
from allranks.sdk.assets.environments import Environments
from allranks.sdk.assets.models import Models
from allranks.sdk.assets.schedules import JobSchedule, ScheduleRecord, Schedules
from allranks.sdk.assets.state import States
from allranks.sdk.connection import find_server
from allranks.sdk.jobs import interrupt
from allranks.sdk.jobs.files import job_files
from allranks.sdk.jobs.follow import Following, substitute_note
from allranks.sdk.jobs.metrics import LoggedPoint, by_name
from allranks.sdk.jobs.names import job_name, no_job
from allranks.sdk.jobs.properties import properties_of
from allranks.sdk.pipelines.components import Component, Components
from allranks.sdk.submit import rehearsal
from allranks.sdk.submit.create import Words, create, create_all
from allranks.sdk.submit.restart import restart
from allranks.sdk.transfer.download import download
from allranks.spec.any_job import AnyJob
from allranks.spec.batch import BatchEndpoint, BatchKeys
from allranks.spec.compute import Compute
from allranks.spec.data import Data
from allranks.spec.endpoint import Deployment, Endpoint
from allranks.spec.fields.azureml_references import output_uri
from allranks.spec.job import CommandJob
from allranks.spec.job_keys import Outputs
from allranks.spec.job_parts import Environment, Output
from allranks.spec.model import Model, ModelVersion

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import JobError, JobRecord, ListedJob
    from allranks.api.metrics import ResourcePoints
    from allranks.sdk.jobs.channel import Completed


class Service(NamedTuple):
    """A service of a job. allranks starts none, so most have no ``endpoint``."""

    type: str | None
    port: int | None = None
    endpoint: str | None = None


class Job:
    """A job as the server last reported it. Every key of `job show --json` is an attribute, and
    every key of its job file: ``job.status``, ``job.error``, ``job.limits``…; keys with the name of
    a method are in ``to_dict()``."""

    name: str
    status: str
    exit_code: int | None
    error: JobError | None

    def __init__(self, record: JobRecord | ListedJob) -> None:
        # Of a list only the main keys.
        self._record: Mapping[str, Any] = record

    @property
    def outputs(self) -> Outputs:
        """Its outputs by name. Each can be used as an input of another job."""
        declared = self._spec().get("outputs") or {}
        outputs = {name: Output(**(value or {})) for name, value in declared.items()}
        for name, output in outputs.items():
            outputs[name] = output.model_copy(update={"path": output_uri(self.name, name)})
        return Outputs(outputs)

    @property
    def properties(self) -> Document:
        """As Azure's: of a sweep also ``best_child_run_id``, its best trial; of a step
        ``azureml.moduleName``, the name of its component."""
        return properties_of({**self._record, "spec": self._spec()})

    @property
    def studio_url(self) -> str:
        """The URL of its page; of its record as JSON where the server has no pages."""
        with find_server.connect() as client:
            return client.url + (self._record.get("page") or routes.show_job.url(self.name))

    @property
    def services(self) -> dict[str, Service]:
        """The services in its job file, and ``Studio`` with the endpoint ``studio_url``."""
        declared = self._spec().get("services") or {}
        services = {name: Service(v.get("type"), v.get("port")) for name, v in declared.items()}
        return {"Studio": Service("Studio", endpoint=self.studio_url), **services}

    def _spec(self) -> Document:
        full = "spec" in self._record
        record = self._record if full else find_server.ask(routes.show_job, self.name)
        return dict(record["spec"])

    def metrics(self) -> dict[str, list[LoggedPoint]]:
        """The metrics reported so far: ``{name: [{"step", "timestamp" (ms since the epoch),
        "value", "attempt"}, …]}``; values may be NaN or infinite."""
        answer = find_server.ask(routes.job_metrics, self.name)
        points_by_name = by_name(answer["series"])
        for points in points_by_name.values():
            for point in points:
                point["value"] = float(point["value"])
        return points_by_name

    def resources(self) -> list[ResourcePoints]:
        """The resource use of nodes, GPUs and ranks: series with ``points`` [seconds since the
        epoch, value]."""
        answer = find_server.ask(routes.job_resources, self.name)
        return answer["series"]

    def artifacts(self) -> list[str]:
        """The files in ``./outputs``, ``./logs`` and its working folder, as paths that `download`
        creates."""
        files = find_server.ask(routes.job_files, self.name)
        paths = (file["path"] for file in files)
        ours = ("artifacts/outputs/", "artifacts/logs/", "artifacts/work/")
        return sorted(path for path in paths if path.startswith(ours))

    def refresh(self) -> Job:
        """Read its current state from the server."""
        self._record = find_server.ask(routes.show_job, self.name)
        return self

    def wait(self, show_output: bool = False, *, timeout: float | None = None) -> Job:
        """Wait until the job has ended; with ``show_output`` write the output of all ranks to
        stdout. Raises TimedOut after ``timeout`` seconds; the job keeps running."""
        jobs = Jobs()
        (jobs.stream if show_output else jobs.wait)(self.name, timeout=timeout)
        return self.refresh()

    def watch(self, every: float = 1.0) -> None:
        """In a notebook: show status, metrics, load and the last lines until the job has ended.
        Interrupting the cell does not affect the job. Raises UsageError outside of IPython."""
        from allranks.sdk.jobs.notebook_watch import watch  # lazy: programs do not need it

        watch(self.name, every)
        self.refresh()

    def _repr_html_(self) -> str:
        """Its status, for the end of a notebook cell."""
        from allranks.sdk.jobs.notebook_watch import drawn  # lazy: as above

        return drawn(self.name)

    def cancel(self) -> Job:
        self._record = find_server.ask(routes.cancel_job, self.name)
        return self

    def preempt(self, node: int | None = None) -> Job:
        """Simulate a preemption of all its nodes, or of one. Raises AllranksError unless the job is
        running."""
        self._record = interrupt.preempt(self.name, node)
        return self

    def release(self, *, retry: bool = False) -> Job:
        """End a job that is held after a failure (``on_failure``), or with ``retry`` start its next
        attempt. Raises AllranksError unless the job is held."""
        self._record = interrupt.release(self.name, retry=retry)
        return self

    def exec(
        self,
        command: Sequence[str],
        *,
        input: bytes = b"",
        rank: int | None = None,
        node: int | None = None,
    ) -> Completed:
        """Run a program in the running job, in a rank's environment, working folder and container;
        returns ``exit_code``, ``stdout`` and ``stderr``. Raises AllranksError if nobody can enter
        the job now."""
        from allranks.sdk.jobs.channel import execute  # lazy: few programs need it

        return execute(self.name, command, input=input, rank=rank, node=node)

    def download(
        self,
        download_path: str | Path = ".",
        *,
        output_name: str | None = None,
        path: str | None = None,
    ) -> Path:
        """Like ``Jobs.download``."""
        return Jobs().download(self.name, download_path, output_name=output_name, path=path)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for this before `_record` exists
            raise AttributeError(name)
        for mapping in (self._record, self._record.get("spec") or {}):
            if name in mapping:
                return mapping[name]
        raise AttributeError(f"a job has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Job(name={self.name!r}, status={self.status!r})"

    def to_dict(self) -> dict[str, Any]:
        return dict(self._record)


class Client:
    """A client of the server at ALLRANKS_SERVER, or of the home's own, started on demand."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.compute = Computes()
        self.components = Components()
        self.environments = Environments()
        self.data = DataAssets()
        self.datastores = Datastores()
        self.models = Models()
        self.states = States()
        self.schedules = Schedules()
        self.online_endpoints = OnlineEndpoints()
        self.online_deployments = OnlineDeployments()
        self.batch_endpoints = BatchEndpoints(Job)
        self.batch_deployments = BatchDeployments(Job)

    @overload
    def create_or_update(self, thing: AnyJob, **words: Unpack[Words]) -> Job: ...
    @overload
    def create_or_update(self, thing: Environment) -> Environment: ...
    @overload
    def create_or_update(self, thing: Data) -> Data: ...
    @overload
    def create_or_update(self, thing: Model) -> ModelVersion: ...
    @overload
    def create_or_update(self, thing: Component) -> Component: ...
    def create_or_update(
        self, thing: AnyJob | Environment | Data | Model | Component, **words: Unpack[Words]
    ) -> Job | Environment | Data | ModelVersion | Component:
        """Submit a job, or create a version of an asset. The keywords are those of
        ``jobs.create_or_update``."""
        if words and isinstance(thing, Component | Environment | Data | Model):
            what = ", ".join(f"`{word}`" for word in words)
            raise UsageError(f"{what}: no keyword for an asset", hint="set it on the asset")
        if isinstance(thing, Component):
            return self.components.create_or_update(thing)
        if isinstance(thing, Environment):
            return self.environments.create_or_update(thing)
        if isinstance(thing, Data):
            return self.data.create_or_update(thing)
        if isinstance(thing, Model):
            return self.models.create_or_update(thing)
        return self.jobs.create_or_update(thing, **words)

    @overload
    def begin_create_or_update(self, thing: Compute) -> Poller[Compute]: ...
    @overload
    def begin_create_or_update(self, thing: Endpoint) -> Poller[EndpointRecord]: ...
    @overload
    def begin_create_or_update(self, thing: Deployment) -> Poller[DeploymentRecord]: ...
    @overload
    def begin_create_or_update(self, thing: JobSchedule) -> Poller[ScheduleRecord]: ...
    @overload
    def begin_create_or_update(self, thing: BatchEndpoint) -> Poller[BatchEndpointRecord]: ...
    @overload
    def begin_create_or_update(self, thing: BatchKeys) -> Poller[DeploymentRecord]: ...
    def begin_create_or_update(self, thing: Any, **_: object) -> Poller[Any]:
        """Create or change a compute, an endpoint, a deployment or a schedule. Azure's further
        keywords, as ``local``, change nothing."""
        if isinstance(thing, Compute):
            return self.compute.begin_create_or_update(thing)
        if isinstance(thing, Endpoint):
            return self.online_endpoints.begin_create_or_update(thing)
        if isinstance(thing, Deployment):
            return self.online_deployments.begin_create_or_update(thing)
        if isinstance(thing, BatchEndpoint):
            return self.batch_endpoints.begin_create_or_update(thing)
        if isinstance(thing, BatchKeys):
            return self.batch_deployments.begin_create_or_update(thing)
        if isinstance(thing, DeploymentRecord):
            is_batch = not hasattr(thing, "replicas")
            deployments = self.batch_deployments if is_batch else self.online_deployments
            return deployments.begin_create_or_update(thing)
        if isinstance(thing, JobSchedule | ScheduleRecord):
            return self.schedules.begin_create_or_update(thing)
        hint = "give a compute, an endpoint, a deployment or a schedule"
        raise UsageError(f"{type(thing).__name__} cannot be created by this", hint=hint)


class MLClient(Client):
    """``Client`` for programs written for ``azure.ai.ml.MLClient``; parameters have no effect."""

    def __init__(
        self,
        credential: object = None,
        subscription_id: str | None = None,
        resource_group_name: str | None = None,
        workspace_name: str | None = None,
        **_: object,
    ) -> None:
        super().__init__()

    @classmethod
    def from_config(cls, credential: object = None, **_: object) -> MLClient:
        return cls(credential)


class Jobs:
    """Operations on jobs. All raise AllranksError with a hint."""

    @overload
    def create_or_update(self, job: AnyJob, **words: Unpack[Words]) -> Job: ...
    @overload
    def create_or_update(
        self, job: Sequence[CommandJob], **words: Unpack[Words]
    ) -> builtins.list[Job]: ...
    def create_or_update(
        self,
        job: AnyJob | Sequence[CommandJob],
        *,
        base: str | Path | None = None,
        experiment_name: str | None = None,
        compute: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        allow_large_code: bool = False,
        allow_large_data: bool = False,
    ) -> Job | builtins.list[Job]:
        """Submit a job, or a list of up to 1,000 command jobs: all of them, or none.

        Relative paths start at ``base``, or else at the folder of its file, or else here. Other
        keywords replace keys of the job. Raises Conflict if the name exists, and CodeTooLarge for
        more than 500 MB or 20,000 files of code unless ``allow_large_code``.
        """
        words = {"experiment_name": experiment_name, "compute": compute, "tags": tags}
        words["description"] = description
        if isinstance(job, builtins.list | tuple):
            return [
                Job(each)
                for each in create_all(job, base, words, allow_large_code, allow_large_data)
            ]
        return Job(create(job, base, words, allow_large_code, allow_large_data))

    def restart(
        self,
        name: str,
        *,
        resume: bool = False,
        fresh: bool = False,
        code: str | Path | None = None,
        set: Sequence[str] = (),
    ) -> Job:
        """Run an ended job again; returns the new job. If it did not complete, the new one goes on
        from its outputs and state; a completed one runs anew. ``resume`` and ``fresh`` choose
        otherwise; ``restarted`` of the returned job says which. ``code`` is a folder, file or
        repository that replaces its code; ``set`` changes its keys, such as ``"inputs.lr=0.1"``."""
        where = None if code is None else str(code)
        return Job(restart(name, resume=resume, fresh=fresh, code=where, overrides=[*set]))

    def rehearse(
        self,
        job: CommandJob,
        *,
        base: str | Path | None = None,
        tolerance: float = TOLERANCE,
        to: TextIO | None = None,
    ) -> rehearsal.Rehearsal:
        """Test that the job resumes from its checkpoints: run it to the first one, kill a rank, and
        compare the metrics after that with an uninterrupted run. Progress is written to ``to``
        (stderr). The job's own state is not changed."""
        if not isinstance(job, CommandJob):
            raise no_job(job)
        stream, folder = to or sys.stderr, Path(base or job.base or ".").absolute()

        def say(sentence: str) -> None:
            print(one_line(sentence), file=stream, flush=True)

        return rehearsal.rehearse(job.to_dict(), folder, tolerance=tolerance, say=say)

    def get(self, name: str) -> Job:
        """The job with this name, or the only one whose name starts with it; ``@last`` is the
        newest job you submitted."""
        return Job(find_server.ask(routes.show_job, job_name(name)))

    def list(
        self,
        *,
        status: str | None = None,
        experiment_name: str | None = None,
        name: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        metrics: Sequence[str] = (),
        sort: str = "-created",
        archived: bool | None = False,
        limit: int = 50,
    ) -> list[Job]:
        """The matching jobs, newest first. ``name`` is a part of the name or a glob, a tag value of
        None matches any, ``metrics`` are conditions such as ``"loss<0.5"``, ``sort`` is e.g.
        ``"-loss"``; ``archived`` True lists only archived jobs, None all jobs."""
        tagged = [key if v is None else f"{key}={v}" for key, v in (tags or {}).items()]
        hidden = "all" if archived is None else "only" if archived else "no"
        records = find_server.ask(
            routes.list_jobs,
            status=status,
            experiment=experiment_name,
            name=name,
            tag=tagged,
            metric=[*metrics],
            sort=sort,
            archived=hidden,
            limit=limit,
            metrics=True,
        )
        return [Job(record) for record in records]

    def archive(self, name: str) -> Job:
        """Hide a job from lists."""
        return self._change(name, {"archived": True})

    def restore(self, name: str) -> Job:
        """Show an archived job in lists again."""
        return self._change(name, {"archived": False})

    def tag(
        self, name: str, tags: Mapping[str, str] | None = None, *, remove: Sequence[str] = ()
    ) -> Job:
        """Set and remove tags of a job."""
        return self._change(name, {"tags": dict(tags or {}), "remove_tags": [*remove]})

    def delete(self, name: str) -> None:
        """Permanently delete an ended job with its outputs and logs."""
        find_server.ask(routes.delete_job, name)

    def _change(self, name: str, changes: Mapping[str, object]) -> Job:
        return Job(find_server.ask(routes.update_job, name, body=changes))

    def cancel(self, name: str) -> Job:
        return Job(find_server.ask(routes.cancel_job, name))

    def begin_cancel(self, name: str) -> Poller[Job]:
        """Like ``cancel``, for programs written for ``azure.ai.ml``."""
        return Poller(self.cancel(name))

    def stream(self, name: str, *, to: TextIO | None = None, timeout: float | None = None) -> Job:
        """Write the output of all ranks to ``to`` (stdout) until the job has ended. A substituted
        environment is reported on stderr. Raises TimedOut like ``wait``."""
        following = Following(
            find_server.connect, name, changed=substitute_note(sys.stderr), seconds=timeout
        )
        stream = to or sys.stdout
        for piece in following.pieces():
            stream.write(piece["log"].encode(errors="surrogateescape").decode(errors="replace"))
            stream.flush()
        return Job(following.job)

    def wait(self, name: str, *, timeout: float | None = None) -> Job:
        """Wait until the job has ended. Raises TimedOut after ``timeout`` seconds."""
        request: dict[str, object] = {"ranks": []}
        following = Following(find_server.connect, name, request=request, seconds=timeout)
        for _ in following.pieces():
            pass
        return Job(following.job)

    def files(self, name: str) -> builtins.list[JobFile]:
        """The files of a job. Other operations and inputs accept their ``path``."""
        with find_server.connect() as client:
            return job_files(client, name)

    def download(
        self,
        name: str,
        download_path: str | Path = ".",
        *,
        output_name: str | None = None,
        path: str | None = None,
        all: bool = True,
    ) -> Path:
        """Download ``artifacts/`` and, with ``all``, ``named-outputs/`` into the folder; with
        ``output_name`` only that output. Existing files are not downloaded again, and an
        interrupted download continues. Returns the folder.

        With ``path``, as listed by ``files``, download only that file or folder and return its
        path: ``outputs/model.pt``, ``named-outputs/NAME/…``. Raises NotFound if it does not exist.
        """
        folder = Path(download_path)
        if path is not None:
            if output_name is not None:
                hint = f"the path of a file in it: path='named-outputs/{output_name}/…'"
                raise UsageError("`path` and `output_name` cannot be used together", hint=hint)
            download(find_server.connect, name, folder, paths=[path])
            return folder / downloaded_as(path)
        download(find_server.connect, name, folder, output=output_name, everything=all)
        return folder
