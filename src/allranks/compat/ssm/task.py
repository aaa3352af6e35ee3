"""A task: what a line or a program of simple-sagemaker asks for, and the job of it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import shutil
import string
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api import routes
from allranks.errors import NotFound, UsageError
from allranks.masking import holds_secrets
from allranks.sdk import Client, Job
from allranks.sdk.connection import find_server
from allranks.sdk.transfer.write_files import beside, checked, destination
from allranks.spec.job import CommandJob

if TYPE_CHECKING:
    from allranks.api.common import Document

_INSIDE = Path(__file__).parent / "inside"
PROGRAM, CONFIG = "allranks_ssm_task.py", "allranks_ssm_task.json"
REPLICATED, SHARDED = "FullyReplicated", "ShardedByS3Key"
KINDS = ("state", "model", "source", "output")
# What a finished task offers as an archive, and where that is in its job's record.
SHARED_STATE = "shared"
_ARCHIVES = {"model": "model.tar.gz", "output": "output.tar.gz", "source": "sourcedir.tar.gz"}
_RECORDED = {"model": "model", "output": "data"}
# The tag with the kind of a task.
KIND = "ssm_kind"
_IMPORTS_TORCH = re.compile(r"(?m)^\s*(?:import|from)\s+torch\b")
_REQUIREMENTS = "requirements.txt"
_IMAGES = {"pytorch": "pytorch/pytorch", "tensorflow": "tensorflow/tensorflow"}


class Channel(NamedTuple):
    """An input: where its data is, and how nodes share it. ``archive``: nodes get it as one file
    of that name."""

    path: str
    distribution: str = REPLICATED
    archive: str = ""


class Request(NamedTuple):
    """What a task runs: ``kind`` is `run`, `shell` or `process`. ``entry`` is its file or
    ``command`` its line; ``files`` are laid beside it."""

    kind: str
    entry: str = ""
    command: Any = ""
    entrypoint: Sequence[str] = ()
    source: str = ""
    files: Sequence[str] = ()
    arguments: Sequence[str] = ()
    hps: Mapping[str, Any] = {}
    channels: Mapping[str, Channel] = {}
    env: Mapping[str, str] = {}
    instance_type: str = ""
    instance_count: int = 1
    spot: bool = True
    minutes: float = 1440
    distribution: Mapping[str, Any] | None = None
    framework: str = ""
    dockerfile: str = ""
    metrics: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}
    clean_state: bool = False


class Task:
    """A task of a project, by its name."""

    def __init__(self, project: str, name: str, prefix: str = "") -> None:
        self.project = re.sub(r"[^\w.-]+", "-", f"{prefix.strip()}{project}".strip())
        self.name = re.sub(r"[^\w.-]+", "-", name.strip())
        self.tags = {"ssm_project": self.project, "ssm_task": self.name}
        self.state = f"ssm-{self.project}-{self.name}"

    def last(self) -> Job | None:
        """Its newest job."""
        jobs = Client().jobs.list(tags=self.tags, limit=1, archived=None)
        return jobs[0] if jobs else None

    def completed(self) -> Job:
        """Its newest job, which must be completed. Raises UsageError."""
        job = self.last()
        if job is None or job.status != "Completed":
            how = "has no job" if job is None else f"is {job.status}"
            hint = f"run it first: allranks ssm run -p {self.project} -t {self.name} …"
            raise UsageError(f"the task {self.name} of {self.project} {how}", hint=hint)
        return job

    def clean(self) -> None:
        """Remove its state."""
        with contextlib.suppress(NotFound):
            Client().states.delete(self.state)

    def as_input(self, kind: str, distribution: str = REPLICATED, subdir: str = "") -> Channel:
        """What the completed task left, for a channel of another. Raises UsageError."""
        if kind not in KINDS:
            hint = f"choose from {', '.join(KINDS)}"
            raise UsageError(f"a task leaves no {kind!r}", hint=hint)
        job = self.completed()
        if kind in _RECORDED and not subdir:
            path = f"azureml://jobs/{job.name}/outputs/artifacts/paths/{_RECORDED[kind]}"
            if not any(
                e.path.startswith(_RECORDED[kind] + "/") for e in Client().jobs.files(job.name)
            ):
                path = str(_kept(f"{job.name}-empty"))
            is_raw = kind == "output" and job.to_dict()["tags"].get(KIND) == "process"
            return Channel(path, distribution, "" if is_raw else _ARCHIVES[kind])
        folder = _kept(f"{job.name}-{kind}")
        if kind == "state":
            if self.state in {each.name for each in Client().states.list()}:
                with tempfile.TemporaryDirectory() as scratch:
                    downloaded = Client().states.download(self.state, download_path=scratch)
                    shutil.rmtree(folder)
                    folder.mkdir()
                    if (downloaded / SHARED_STATE).is_dir():
                        _copied(downloaded / SHARED_STATE, folder)
            return Channel(str(folder / subdir), distribution)
        _code_of(job, folder)
        return Channel(str(folder), distribution, _ARCHIVES[kind])

    def submit(self, request: Request) -> Job:
        """Start a job of it. Raises AllranksError."""
        if request.clean_state:
            self.clean()
        with tempfile.TemporaryDirectory(prefix="allranks-ssm-") as folder:
            self._assemble(request, Path(folder))
            job = self._job(request, folder)
            return Client().jobs.create_or_update(CommandJob.parse(job), allow_large_code=True)

    def _assemble(self, request: Request, folder: Path) -> None:
        """The code that is sent: the entry point, what lies beside it, and our program."""
        sources = [Path(file) for file in request.files]
        if request.source:
            _copied(Path(request.source), folder)
        entry = Path(request.entry) if request.entry else None
        if entry is not None and entry.is_dir():
            raise UsageError(f"{entry} is a folder", hint="name a .py or .sh file")
        if entry is not None and not (folder / entry.name).exists():
            sources.insert(0, entry)
        for source in sources:
            if not source.exists():
                raise UsageError(f"{source} not found", hint="check the path")
            if source.is_dir():
                _copied(source, folder / source.name)
            else:
                shutil.copy(source, folder)
        if entry is not None and entry.suffix == ".sh":
            (folder / entry.name).chmod(0o755)
        shutil.copy(_INSIDE / PROGRAM, folder)
        _copied(_INSIDE / "worker_toolkit", folder / "worker_toolkit")
        config = {
            "kind": request.kind,
            "entry": "" if entry is None else entry.name,
            "command": request.command,
            "entrypoint": list(request.entrypoint),
            "arguments": list(request.arguments),
            "hps": dict(request.hps),
            "channels": {name: each._asdict() for name, each in request.channels.items()},
            "env": dict(request.env),
            "instance_type": request.instance_type,
        }
        (folder / CONFIG).write_text(json.dumps(config))

    def _job(self, request: Request, folder: str) -> Document:
        """The job of a job file."""
        requirements = Path(folder, _REQUIREMENTS)
        made = environment(request, requirements)
        # Any environment but the current one has them, resolved together with all else.
        is_left = requirements.is_file() and made == "current"
        begin = f"pip install -r {_REQUIREMENTS} && " if is_left else ""
        resources: Document = {"instance_count": request.instance_count}
        if request.instance_type and "local" not in request.instance_type:
            resources["instance_type"] = request.instance_type.removeprefix("ml.")
        job: Document = {
            "type": "command",
            "name": f"{self.name[:60]}-{time.strftime('%Y-%m-%d-%H-%M-%S')}-{_letters(8)}",
            "display_name": self.name,
            "experiment_name": self.project,
            "tags": {
                **{k: str(v) for k, v in request.tags.items()},
                **self.tags,
                KIND: request.kind,
            },
            "command": f"{begin}exec python {PROGRAM}",
            "code": folder,
            "environment": made,
            "inputs": {name: _input(each) for name, each in request.channels.items()},
            "resources": resources,
            "distribution": distribution(request.distribution),
            "limits": {"timeout": request.minutes * 60},
            "state": self.state,
            "metrics": dict(request.metrics),
        }
        if request.instance_type in computes():
            job["compute"] = request.instance_type
            resources.pop("instance_type", None)  # a type with `local` is none
        if request.spot:
            job["retry"] = {"max_attempts": 3, "on": ["node_lost", "preempted"]}
        return {key: each for key, each in job.items() if each not in ({}, None)}


def volume_note(job: Job, gigabytes: int | None) -> str:
    """Whether the disk of the server's home has less than a volume was to have. Volumes are not
    made."""
    folder = Path(str(job.to_dict()["folder"])).parent
    free = shutil.disk_usage(folder).free / 1e9 if folder.exists() else math.inf
    text = f"note: volume_size is {gigabytes} GB, and {free:.0f} GB are free at {folder}"
    return text if free < (gigabytes or 0) else ""


def computes() -> set[str]:
    """The names that mean a compute, also by `allranks compute map`."""
    told = find_server.ask(routes.list_computes)
    return {compute["name"] for compute in told["computes"]} | {*told["stands_for"]}


def environment(request: Request, requirements: Path | None = None) -> Any:
    """The current Python, unless the line names a framework or a Dockerfile, or its script imports
    PyTorch, which simple-sagemaker's default image has, and the current Python has none."""
    framework = request.framework or lacking_framework(request.entry)
    base = _IMAGES.get(request.framework or "pytorch", "python")
    has_more = requirements is not None and requirements.is_file()
    if request.dockerfile or (has_more and framework in _IMAGES):
        path = Path(request.dockerfile or os.devnull)
        text = request.dockerfile
        if request.dockerfile and path.exists():
            text = (path / "Dockerfile" if path.is_dir() else path).read_text()
        if "FROM" not in text.upper():
            text = f"FROM __BASE_IMAGE__\n{text}"
        folder = Path(_kept(f"dockerfile-{_letters(8)}"))
        if path.is_dir():
            _copied(path, folder)
        if requirements is not None and has_more:
            shutil.copy(requirements, folder / _REQUIREMENTS)
            text += f"\nCOPY {_REQUIREMENTS} .\nRUN pip install -r {_REQUIREMENTS}\n"
        (folder / "Dockerfile").write_text(text.replace("__BASE_IMAGE__", base))
        return {"build": {"path": str(folder), "dockerfile_path": "Dockerfile"}}
    return {"image": base} if framework in _IMAGES else "current"


def lacking_framework(entry: str) -> str:
    """`pytorch` if the script imports it and the current Python has none; else empty."""
    try:
        text = Path(entry).read_text(errors="replace") if entry else ""
    except OSError:
        return ""
    imports = _IMPORTS_TORCH.search(text) is not None
    return "pytorch" if imports and find_spec("torch") is None else ""


def distribution(kinds: Mapping[str, Any] | None) -> Document:
    """SageMaker's way of distributing as ours. Raises UsageError for one that is not there."""
    for kind, options in (kinds or {}).items():
        if isinstance(options, Mapping) and not options.get("enabled", True):
            continue
        more = options if isinstance(options, Mapping) else {}
        if kind == "mpi":
            return {"type": "mpi", "process_count_per_instance": more.get("processes_per_host", 1)}
        if kind in ("torch_distributed", "pytorchddp"):
            return {"type": "pytorch", "process_count_per_instance": 1}
        if kind == "parameter_server":
            return {"type": "tensorflow", "parameter_server_count": 1}
        if kind in ("multi_worker_mirrored_strategy",):
            return {"type": "tensorflow"}
        hint = "use mpi, torch_distributed or parameter_server"
        raise UsageError(
            f"the distribution {kind!r} is not there", where="--distribution", hint=hint
        )
    return {"type": "none"}


def _input(channel: Channel) -> Document:
    path = channel.path
    if "://" not in path:
        place = Path(path)
        if not place.exists():
            raise UsageError(f"{path} not found", hint="an input is a local path or an S3 address")
        path = str(place.absolute())
    kind = "uri_file" if "://" not in path and Path(path).is_file() else "uri_folder"
    data: Document = {"type": kind, "path": path, "mode": "ro_mount"}
    if channel.distribution == SHARDED and not channel.archive and kind == "uri_folder":
        data |= {"sharded": True, "mode": "download"}
    return data


def _kept(name: str) -> Path:
    """A folder below the default datastore, for data that jobs read. Raises UsageError if that is
    on another machine."""
    store = Client().datastores.get("default")
    folder = Path(str(store.path), "ssm", name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "run allranks on the machine of its server"
        raise UsageError(f"{folder} cannot be written: {error.strerror}", hint=hint) from None
    return folder


def _code_of(job: Job, folder: Path) -> None:
    """The code that was sent with a job, without what we added."""
    with find_server.connect() as client:
        for file in client.ask(routes.job_code, job.name):
            path = str(file["path"])
            ours = path in (PROGRAM, CONFIG) or path.startswith("worker_toolkit/")
            if ours or holds_secrets(path):
                continue
            code = client.call(*routes.job_code_file.at(job.name, path)).body
            with destination(folder, checked(path), beside(path, ()), threading.Event()) as target:
                target.cut()
                target.write(code)
                target.finish(None)


def _copied(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)


def _letters(count: int) -> str:
    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(count))
