"""Register named outputs as data assets when their job completes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from allranks.core.plan import OutputTask
from allranks.errors import Conflict, Problem, SpecError
from allranks.spec.job import CommandJob
from allranks.spec.shell.expressions import fill
from allranks.store.assets import AssetRow, Assets
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.events import OutputAssets


def refuse_taken(spec: CommandJob, versions: Callable[[str], list[AssetRow]]) -> None:
    """Raise SpecError for outputs whose version exists already."""
    wrong = []
    for key, output in spec.outputs.items():
        if output is None or not output.name or not output.version:
            continue
        if any(row.version == output.version for row in versions(output.name)):
            hint = "versions never change: omit `version` to create the next one"
            message = f"the data asset {output.name}:{output.version} exists already"
            wrong.append(Problem(message, f"outputs.{key}.version", hint=hint))
    if wrong:
        raise SpecError(wrong)


# The name of a datastore in an address, which may be Azure ML's name for the default one.
_DATASTORE = re.compile(r"(azureml://(?:.+/)?datastores/)[^/]+")


def register(row: JobRow, data: Assets) -> OutputAssets:
    """Register a job's named outputs. Idempotent. Returns `assets` by output, and `notes`."""
    made: dict[str, str] = {}
    notes: list[str] = []
    declared = row.spec.get("outputs") or {}
    for task in row.plan.task.outputs:
        output = declared.get(task.name)
        name = output.get("name") if isinstance(output, Mapping) else None
        if not isinstance(output, Mapping) or not name:
            continue
        version = output.get("version")
        try:
            asset = data.create(str(name), version and str(version), _spec(row, task, output))
            made[task.name] = f"{asset.name}:{asset.version}"
        except Conflict as error:
            notes.append(f"the output {task.name} was not registered: {error.message}")
    registered: OutputAssets = {}
    if made:
        registered["assets"] = made
    if notes:
        registered["notes"] = notes
    return registered


def _spec(row: JobRow, task: OutputTask, output: Mapping[str, Any]) -> dict[str, Any]:
    path = task.uri or task.path
    if task.datastore and str(output.get("path", "")).startswith("azureml://"):
        # The datastore's path keeps its credentials, unlike a URI of the bucket.
        path = fill(str(output["path"]), {"name": row.name, "default_datastore": task.datastore})
        path = _DATASTORE.sub(rf"\g<1>{task.datastore}", path, count=1)
    spec = {"path": path, "job": row.name, "output": task.name}
    kind = str(output.get("type") or "uri_folder")
    return spec if kind == "uri_folder" else {"type": kind, **spec}
