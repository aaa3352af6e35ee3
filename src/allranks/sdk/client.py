"""A client of the server for Python programs and notebooks."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TextIO, overload
from urllib.parse import urlencode

from allranks.errors import UsageError
from allranks.plan.insights.rehearsal import TOLERANCE
from allranks.plan.job.file_addresses import JobFile, downloaded_as
from allranks.sdk.assets.computes import Computes, Poller
from allranks.sdk.assets.data import DataAssets, Datastores
from allranks.sdk.assets.environments import Environments
from allranks.sdk.assets.models import Models
from allranks.sdk.assets.state import States
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path
from allranks.sdk.jobs import interrupt
from allranks.sdk.jobs.files import job_files
from allranks.sdk.jobs.follow import Following, substitute_note
from allranks.sdk.jobs.metrics import by_name
from allranks.sdk.jobs.names import job_name
from allranks.sdk.submit import rehearsal
from allranks.sdk.submit.submission import prepare, send
from allranks.sdk.transfer.download import download
from allranks.spec.compute import Compute
from allranks.spec.data import Data
from allranks.spec.fields.azureml_references import output_uri
from allranks.spec.job import CommandJob, Outputs, parse
from allranks.spec.job_parts import Environment, Output
from allranks.spec.model import Model, ModelVersion


class Service(NamedTuple):
    """Something to reach beside a job; allranks starts none, so most have no ``endpoint``."""

    type: str | None
    port: int | None = None
    endpoint: str | None = None


class Job:
    """A job as the server last told. Every key of `job show --json` is an attribute:
    ``job.status``, ``job.exit_code``, ``job.error``…; what is a method here is in ``to_dict()``."""

    name: str
    status: str
    exit_code: int | None
    error: dict[str, Any] | None

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told

    @property
    def outputs(self) -> Outputs:
        """Where its outputs are: each may be an input of another job, as it is."""
        # A list tells of each job in brief.
        told = self._told if "spec" in self._told else find_server.ask("GET", job_path(self.name))
        given = told["spec"].get("outputs") or {}
        found = {name: Output(**(value or {})) for name, value in given.items()}
        return Outputs(
            {
                name: each.model_copy(update={"path": output_uri(self.name, name)})
                for name, each in found.items()
            }
        )

    @property
    def studio_url(self) -> str:
        """Its address at the server: the record as JSON, for who has the token."""
        with find_server.connect() as client:
            return client.url + job_path(self.name)

    @property
    def services(self) -> dict[str, Service]:
        """The services of its job file, and ``Studio``, whose endpoint is ``studio_url``."""
        told = self._told if "spec" in self._told else find_server.ask("GET", job_path(self.name))
        given = told["spec"].get("services") or {}
        found = {name: Service(each.get("type"), each.get("port")) for name, each in given.items()}
        return {"Studio": Service("Studio", endpoint=self.studio_url), **found}

    def metrics(self) -> dict[str, list[dict[str, Any]]]:
        """The numbers its ranks have printed so far: ``{name: [{"step", "timestamp" (ms since the
        epoch), "value", "attempt"}, …]}``; a value may be NaN or infinite."""
        found = by_name(find_server.ask("GET", job_path(self.name, "/metrics"))["series"])
        for points in found.values():
            for point in points:
                point["value"] = float(point["value"])
        return found

    def resources(self) -> list[dict[str, Any]]:
        """What its nodes, GPUs and ranks used: series with their ``points`` [seconds since the
        epoch, value]."""
        found: list[dict[str, Any]] = find_server.ask("GET", job_path(self.name, "/resources"))[
            "series"
        ]
        return found

    def artifacts(self) -> list[str]:
        """What it left in ``./outputs``, ``./logs`` and its working folder: paths as `download`
        makes them."""
        paths = (each["path"] for each in find_server.ask("GET", job_path(self.name, "/files")))
        ours = ("artifacts/outputs/", "artifacts/logs/", "artifacts/work/")
        return sorted(path for path in paths if path.startswith(ours))

    def refresh(self) -> Job:
        """Ask the server how it is now."""
        self._told = find_server.ask("GET", job_path(self.name))
        return self

    def wait(self, show_output: bool = False, *, timeout: float | None = None) -> Job:
        """Return once it has ended; meanwhile write what every rank prints to stdout, if asked.
        Raises TimedOut when it has not after so many seconds: it goes on."""
        jobs = Jobs()
        (jobs.stream if show_output else jobs.wait)(self.name, timeout=timeout)
        return self.refresh()

    def watch(self, every: float = 1.0) -> None:
        """In a notebook: show how it goes, its metrics, load and last lines, until it has ended.
        Interrupting the cell leaves the job alone. Raises UsageError where there is no IPython."""
        from allranks.sdk.jobs.notebook_watch import watch  # lazy: programs do not need it

        watch(self.name, every)
        self.refresh()

    def _repr_html_(self) -> str:
        """How it stands, where a cell of a notebook ends with it."""
        from allranks.sdk.jobs.notebook_card import card  # lazy: as above

        told = find_server.ask("GET", job_path(self.name))
        metrics = find_server.ask("GET", job_path(self.name, "/metrics/summary"))["series"]
        return card(told, metrics)

    def cancel(self) -> Job:
        self._told = find_server.ask("POST", job_path(self.name, "/cancel"))
        return self

    def preempt(self, node: int | None = None) -> Job:
        """Rehearse that its nodes, or one of them, are taken away. Raises AllranksError unless it
        runs."""
        self._told = interrupt.preempt(self.name, node)
        return self

    def download(
        self,
        download_path: str | Path = ".",
        *,
        output_name: str | None = None,
        path: str | None = None,
    ) -> Path:
        """As ``Jobs.download``."""
        return Jobs().download(self.name, download_path, output_name=output_name, path=path)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by copy and pickle before there is a `_told`
            raise AttributeError(name)
        try:
            return self._told[name]
        except KeyError:
            raise AttributeError(f"a job has no {name!r}") from None

    def __repr__(self) -> str:
        return f"Job(name={self.name!r}, status={self.status!r})"

    def to_dict(self) -> dict[str, Any]:
        return dict(self._told)


class Client:
    """The server of ALLRANKS_SERVER, else the home's own, started when it is not running."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.compute = Computes()
        self.environments = Environments()
        self.data = DataAssets()
        self.datastores = Datastores()
        self.models = Models()
        self.states = States()

    @overload
    def create_or_update(self, thing: CommandJob) -> Job: ...
    @overload
    def create_or_update(self, thing: Environment) -> Environment: ...
    @overload
    def create_or_update(self, thing: Data) -> Data: ...
    @overload
    def create_or_update(self, thing: Model) -> ModelVersion: ...
    def create_or_update(
        self, thing: CommandJob | Environment | Data | Model
    ) -> Job | Environment | Data | ModelVersion:
        """Submit a job, or add a version of an environment, of data or of a model."""
        if isinstance(thing, Environment):
            return self.environments.create_or_update(thing)
        if isinstance(thing, Data):
            return self.data.create_or_update(thing)
        if isinstance(thing, Model):
            return self.models.create_or_update(thing)
        return self.jobs.create_or_update(thing)

    def begin_create_or_update(self, thing: Compute) -> Poller[Compute]:
        """As ``compute.begin_create_or_update``."""
        return self.compute.begin_create_or_update(thing)


class MLClient(Client):
    """``Client`` with the name and the parameters of ``azure.ai.ml.MLClient``: a program written
    for it changes its imports only. There are no workspaces here; the parameters have no effect."""

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
    """The operations on jobs; all raise AllranksError, with a hint."""

    def create_or_update(
        self,
        job: CommandJob,
        *,
        base: str | Path | None = None,
        experiment_name: str | None = None,
        compute: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        allow_large_code: bool = False,
    ) -> Job:
        """Submit a job. Its relative paths begin at ``base``, else at the folder of the file it
        was loaded from, else at the current one; the other words take the place of the job's.

        An existing name is a Conflict: an ended job is never changed. A code folder of more than
        500 MB or 20,000 files raises CodeTooLarge unless ``allow_large_code``.
        """
        if not isinstance(job, CommandJob):
            raise _no_job(job)
        words = {
            "experiment_name": experiment_name,
            "compute": compute,
            "description": description,
            "tags": tags,
        }
        given = {name: value for name, value in words.items() if value is not None}
        # Checked as a whole again: values inside its mappings may have been changed.
        spec = parse({**dict(job), **given}).to_dict()
        folder = Path(base or job.base or ".").absolute()
        submission, snapshot = prepare(spec, folder, allow_large=allow_large_code)
        with find_server.connect() as client:
            return Job(send(client, submission, snapshot))

    def rehearse(
        self,
        job: CommandJob,
        *,
        base: str | Path | None = None,
        tolerance: float = TOLERANCE,
        to: TextIO | None = None,
    ) -> rehearsal.Rehearsal:
        """Try that the job goes on from its checkpoints: run it to the first, kill a rank, and
        compare what it logs after that with the same job uninterrupted. Progress is written to
        ``to`` (stderr). The job itself and its state are not touched."""
        if not isinstance(job, CommandJob):
            raise _no_job(job)
        goal, folder = to or sys.stderr, Path(base or job.base or ".").absolute()

        def say(sentence: str) -> None:
            print(sentence, file=goal, flush=True)

        return rehearsal.rehearse(job.to_dict(), folder, tolerance=tolerance, say=say)

    def get(self, name: str) -> Job:
        """The job of that name, or of the only name that begins so; ``@last`` is the newest that
        you submitted."""
        return Job(find_server.ask("GET", job_path(job_name(name))))

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
        """The jobs that match, the newest first: ``name`` is a part or a glob, a tag's value None
        is any, ``metrics`` are conditions like ``"loss<0.5"``, ``sort`` is e.g. ``"-loss"``,
        ``archived`` True is only archived jobs, None archived jobs, too."""
        tagged = [key if each is None else f"{key}={each}" for key, each in (tags or {}).items()]
        words = {"status": status, "experiment": experiment_name, "name": name}
        given = {key: each for key, each in words.items() if each is not None}
        hidden = "all" if archived is None else "only" if archived else "no"
        more = {"tag": tagged, "metric": [*metrics], "sort": sort, "archived": hidden}
        query = urlencode(given | more | {"limit": limit, "metrics": True}, doseq=True)
        return [Job(each) for each in find_server.ask("GET", f"/api/v1/jobs?{query}")]

    def archive(self, name: str) -> Job:
        """Hide a job from lists."""
        return self._change(name, {"archived": True})

    def restore(self, name: str) -> Job:
        """Show an archived job in lists again."""
        return self._change(name, {"archived": False})

    def tag(
        self, name: str, tags: Mapping[str, str] | None = None, *, remove: Sequence[str] = ()
    ) -> Job:
        """Set tags of a job and remove others; the rest stay."""
        return self._change(name, {"tags": dict(tags or {}), "remove_tags": [*remove]})

    def delete(self, name: str) -> None:
        """Remove an ended job with its outputs and logs, for good."""
        find_server.ask("DELETE", job_path(name))

    def _change(self, name: str, changes: dict[str, Any]) -> Job:
        return Job(find_server.ask("PATCH", job_path(name), changes))

    def cancel(self, name: str) -> Job:
        return Job(find_server.ask("POST", job_path(name, "/cancel")))

    def begin_cancel(self, name: str) -> Poller[Job]:
        """As ``cancel``, for programs written for ``azure.ai.ml``."""
        return Poller(self.cancel(name))

    def stream(self, name: str, *, to: TextIO | None = None, timeout: float | None = None) -> Job:
        """Write every rank's output to ``to`` (stdout) until the job has ended; stderr says when
        another environment stands for the one that was asked for. Raises TimedOut as ``wait``."""
        following = Following(
            find_server.connect, name, changed=substitute_note(sys.stderr), seconds=timeout
        )
        goal = to or sys.stdout
        for piece in following.pieces():
            goal.write(piece["log"].encode(errors="surrogateescape").decode(errors="replace"))
            goal.flush()
        return Job(following.job)

    def wait(self, name: str, *, timeout: float | None = None) -> Job:
        """Return once the job has ended. Raises TimedOut when it has not after so many seconds."""
        wanted: dict[str, object] = {"ranks": []}
        following = Following(find_server.connect, name, wanted=wanted, seconds=timeout)
        for _ in following.pieces():
            pass
        return Job(following.job)

    def files(self, name: str) -> builtins.list[JobFile]:
        """The files that a job left; each ``path`` is what other operations and inputs take."""
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
        """Fetch ``artifacts/`` and, with ``all``, ``named-outputs/`` into the folder; with
        ``output_name``, that output alone. What is there already is not fetched again; after an
        interruption the same call goes on from there. Returns the folder.

        With ``path``, an address that ``files`` lists, fetch that file or folder alone and return
        where it is: ``outputs/model.pt``, ``named-outputs/NAME/…``. Raises NotFound without it.
        """
        folder = Path(download_path)
        if path is not None:
            if output_name is not None:
                hint = f"the path of a file in it: path='named-outputs/{output_name}/…'"
                raise UsageError("`path` and `output_name` exclude each other", hint=hint)
            download(find_server.connect, name, folder, paths=[path])
            return folder / downloaded_as(path)
        download(find_server.connect, name, folder, output=output_name, everything=all)
        return folder


def _no_job(given: object) -> UsageError:
    if isinstance(given, str | PathLike):
        hint = f"a file is read by load_job({str(given)!r})"
        return UsageError(f"{str(given)!r} is no job, but text", hint=hint)
    hint = "`command(...)` makes one, load_job(FILE) reads one"
    return UsageError(f"what was given is no job, but {type(given).__name__}", hint=hint)
