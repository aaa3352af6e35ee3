"""Register models: copy files of a job, or uploaded files, into the home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from allranks import folder_trees
from allranks.core.data import model_flavor
from allranks.core.plan import OutputTask, Task
from allranks.errors import Conflict, MissingCode, SpecError, UsageError
from allranks.masking import without_credentials
from allranks.server.assets import job_files
from allranks.server.assets.data_locations import Find
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.jobs import view
from allranks.settings import Home
from allranks.spec.fields.azureml_references import OutputOf, address_of, left_at, left_by
from allranks.spec.model import NamedModel
from allranks.statuses import TERMINAL
from allranks.store.assets import AssetRow
from allranks.store.files import trees
from allranks.store.files.blobs import Blobs
from allranks.store.files.trees import Entry, NewTree
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.assets import Lineage

_GIT = {
    "repository": "azureml.git.repository_uri",
    "branch": "azureml.git.branch",
    "commit": "azureml.git.commit",
    "uncommitted_changes": "azureml.git.dirty",
}
# Characters of an MLmodel that are read.
_MLMODEL_SIZE = 1 << 20


class Models(NamedTuple):
    """Registers models. ``admission_lock`` is held while a version is created; ``find`` looks up
    jobs."""

    home: Home
    versions: ModelVersions
    blobs: Blobs
    find: Find
    admission_lock: Lock

    def register(self, model: NamedModel, sent: Sequence[Entry] | None = None) -> AssetRow:
        """Create a version from files of a job, or from uploaded files (``sent``). Idempotent for
        identical files. Returns when all files are copied.

        Raises SpecError, NotFound and UsageError for missing or invalid files, MissingCode for
        blobs that must be uploaded first, and Conflict.
        """
        made: dict[str, Any] = {}
        if sent is not None:
            sources = self._sent(sent)
        elif (of := _job_files(model)) is not None:
            sources, made = self._left(of)
        else:
            hint = "give local files, or files of a job: --job JOB --path outputs/…"
            raise UsageError(
                f"cannot register a model from {model.path!r}", where="path", hint=hint
            )
        assets, kept = self.versions
        with kept.copy(sources) as copy:
            if sent is not None:
                self._verify(sent, copy.entries)
            kept.repair(copy)
            spec = {**_spec(model, copy), **made}
            with self.admission_lock:
                return assets.create(model.name, model.version, spec, lambda: kept.keep(copy))

    def take(
        self, model: NamedModel, number: str, sources: Mapping[str, trees.Source], row: JobRow
    ) -> AssetRow:
        """Create a version that another registry numbered, from files of a job that may be live:
        with that number if it is free, else the next. The same files of the same job are one
        version. Raises like ``register``."""
        assets, kept = self.versions
        with kept.copy(sources) as copy:
            kept.repair(copy)
            spec = {**_spec(model, copy), "job": row.name, "lineage": lineage(row)}
            with self.admission_lock:
                for each in assets.versions(model.name):
                    if (each.spec["digest"], each.spec.get("job")) == (copy.digest, row.name):
                        return each
                rows = assets.versions(model.name, deleted=True)
                is_free = all(each.version != number for each in rows)
                version = number if is_free else None
                return assets.create(model.name, version, spec, lambda: kept.keep(copy))

    def _left(self, of: OutputOf) -> tuple[dict[str, trees.Source], dict[str, Any]]:
        """The files of a job, and the lineage of the model."""
        row, of = job_files.written_by(self.find(of.job), of, self.find)
        assert row is not None  # find raises NotFound
        of = of._replace(job=row.name)
        if row.record.status not in TERMINAL:
            hint = f"wait for it: allranks job wait {row.name}"
            raise Conflict(
                f"the job {row.name} is {row.record.status} and may still write it", hint=hint
            )
        left = job_files.find(self.home, row, of)
        if left.output is not None and left.output.uri:
            raise _elsewhere(left.output)
        if not left.path.exists():
            raise SpecError(job_files.left_nothing(self.home, row, of)._replace(where="path"))
        record = self.home.jobs / row.name
        if left.root.is_relative_to(record) and not folder_trees.resolved(left.root, [str(record)]):
            raise trees.unsupported(left.root, "is a link that leads outside")  # the job made it
        # Normalized, so that the same files are the same version.
        where = {"job": row.name, "path": address_of(of if left.output else of._replace(output=""))}
        return trees.model_files(left.path, left.root), {**where, "lineage": lineage(row)}

    def _sent(self, sent: Sequence[Entry]) -> dict[str, trees.Source]:
        hashes = [each.sha256 for each in sent if not each.target]
        missing = [sha256 for sha256 in hashes if not self.blobs.has(sha256)]
        if missing:
            raise MissingCode("the files have not been uploaded yet", hint="upload them first")
        return {each.path: each.target or self.blobs.path(each.sha256).resolve() for each in sent}

    def _verify(self, sent: Sequence[Entry], stored: Sequence[Entry]) -> None:
        """Raise MissingCode for blobs that were damaged after their upload."""
        expected = {each.path: each.sha256 for each in sent}
        for file in stored:
            if file.sha256 != expected[file.path]:
                self.blobs.path(expected[file.path]).unlink(missing_ok=True)
                raise MissingCode(f"{file.path!r} is damaged on the server", hint="upload it again")


def _elsewhere(output: OutputTask) -> UsageError:
    hint = "download it, then: allranks model create NAME --path FILES --property job=JOB"
    where = without_credentials(output.uri)
    return UsageError(f"the output {output.name} is in a datastore", where=where, hint=hint)


def _job_files(model: NamedModel) -> OutputOf | None:
    """The files of a job that the model names, or None."""
    of = left_by(model.path, "path")
    if of is None and model.job is not None:
        return left_at(model.job, model.path)
    if of is not None and model.job not in (None, of.job):
        hint = "omit one of the two"
        raise UsageError(f"{model.path!r} is not of the job {model.job}", where="path", hint=hint)
    return of


def _spec(model: NamedModel, copy: NewTree) -> dict[str, Any]:
    """The stored spec of a version."""
    paths = [entry.path for entry in copy.entries]
    kept = model.model_dump(mode="json", exclude_defaults=True, exclude={"name", "version", "job"})
    kept["type"] = kept.get("type") or model_flavor.model_type(paths)
    if model.flavors is None and (flavors := _flavors(paths, copy)):
        kept["flavors"] = {flavor: {} for flavor in flavors}
    size = sum(entry.size for entry in copy.entries)
    return {**kept, "files": len(paths), "size": size, "digest": copy.digest}


def _flavors(paths: Sequence[str], copy: NewTree) -> list[str]:
    """Those that the file of MLflow's model lists, else the one that the names of files tell."""
    if model_flavor.model_type(paths) == model_flavor.MLFLOW:
        with (copy.folder / trees.FILES / model_flavor.MLMODEL).open(errors="replace") as file:
            if flavors := model_flavor.listed(file.read(_MLMODEL_SIZE)):
                return flavors
    flavor = model_flavor.flavor(paths)
    return [flavor] if flavor else []


def lineage(row: JobRow) -> Lineage:
    """The lineage of a model: command, code, environment and inputs of its job."""
    spec, task = row.spec, row.plan.task
    properties = spec.get("properties") or {}
    inputs = (spec.get("inputs") or {}).items()
    facts = {
        "experiment": row.experiment,
        "status": str(row.record.status) if row.record.status in TERMINAL else None,
        "attempt": row.record.attempt,
        "command": _with_values(task),
        "code": task.code or task.in_place,
        **{word: properties.get(name) for word, name in _GIT.items()},
        "environment": view.environment(task),
        # As pinned at submission: `azureml:NAME:VERSION`, or a path.
        "inputs": {n: each["path"] if isinstance(each, Mapping) else each for n, each in inputs},
    }
    return cast("Lineage", {k: value for k, value in facts.items() if value not in (None, {})})


def _with_values(task: Task) -> str:
    """The command of a trial with its parameters."""
    command = task.command
    for name, text in task.parameters.items():
        command = command.replace(f"${{{{search_space.{name}}}}}", text)
    return command
