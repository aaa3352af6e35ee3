"""The job of a schedule with other values, as requests of Azure ML's first SDK have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from allranks.errors import NotFound, UsageError
from allranks.spec.fields.identifiers import matching
from allranks.spec.schedule import ENDPOINT_VERSIONS
from allranks.store.schedules import ScheduleRow

_SETTINGS = {
    "ContinueRunOnStepFailure": "continue_on_step_failure",
    "RegenerateOutputs": "force_rerun",
}
_DATASETS = "DataSetDefinitionValueAssignments"
_KNOWN = {"ExperimentName", "ParameterAssignments", "DataPathAssignments", *_SETTINGS}
# What only says where a request comes from.
_SILENT = {"RunSource"}


def with_values(
    spec: Mapping[str, Any], request: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The job of a request, and notes on what of the request has no effect. Raises UsageError."""
    if request.get(_DATASETS):
        hint = "submit the pipeline from Python, or give DataPathAssignments"
        raise UsageError("a dataset has no id here", where=_DATASETS, hint=hint)
    inputs = dict(spec.get("inputs") or {})
    ignored = sorted(request.keys() - _KNOWN - _SILENT)
    paths = {name: _data(path) for name, path in _part(request, "DataPathAssignments").items()}
    for text, value in {**_part(request, "ParameterAssignments"), **paths}.items():
        name = matching(text, inputs)
        if name is None:
            ignored.append(text)
            continue
        inputs[name] = value
    settings = {
        key: request[word] for word, key in _SETTINGS.items() if request.get(word) is not None
    }
    made = {**spec, **({"inputs": inputs} if inputs else {})}
    if settings:
        made["settings"] = {**(spec.get("settings") or {}), **settings}
    if request.get("ExperimentName"):
        made["experiment_name"] = request["ExperimentName"]
    return made, [f"no effect here: {name}" for name in ignored]


def version_of(row: ScheduleRow, version: str) -> str:
    """The schedule of a version of a pipeline endpoint; empty without ``version``. Raises
    NotFound."""
    if not version:
        return ""
    try:
        names = json.loads(row.spec.get("tags", {}).get(ENDPOINT_VERSIONS, "[]"))
        return {str(number): str(name) for number, name in enumerate(names)}[version]
    except (ValueError, TypeError, KeyError):  # the tag is a user's
        hint = "PipelineEndpoint.list_versions() lists them"
        raise NotFound(f"{row.name} has no version {version!r}", hint=hint) from None


def _part(request: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = request.get(key)
    return value if isinstance(value, Mapping) else {}


def _data(path: Any) -> Any:
    """A path on a datastore as an input."""
    if not isinstance(path, Mapping):
        return path
    store, below = path.get("DataStoreName"), str(path.get("RelativePath", "")).lstrip("/")
    return {"type": "uri_folder", "path": f"azureml://datastores/{store}/paths/{below}"}
