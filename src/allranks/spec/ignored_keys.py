"""Keys of job files that are accepted and have no effect: they are noted at submission, and listed
in the reference. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from allranks.spec.shell.expressions import BARE

_PATH = "its path says where it is"
# By place, `*` is a name chosen by the user: why it has none.
IGNORED: Mapping[str, str] = {
    "identity": "ranks run as the user of the compute",
    "queue_settings.priority": "the cluster decides: resources.properties",
    "resources.max_instance_count": "the number of nodes is instance_count",
    "resources.locations": "the compute is where it is",
    "environment.datastore": _PATH,
    "environment.inference_config": "it is for deployments",
    "environment.os_type": "it is that of the nodes",
    "inputs.*.datastore": _PATH,
    "auto_delete_setting": "nothing is deleted by age",
    "error_threshold": "use mini_batch_error_threshold",
    "logging_level": "the entry script decides",
    "partition_keys": "files are divided by number or size",
    "settings.default_datastore": "outputs go to the record",
}
UNDECLARED = "the component declares no such input"


def ignored_keys(data: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """The keys of a job without effect, those of its steps and components too; each with why."""
    for place, why in IGNORED.items():
        yield from ((f"{at}{key}", why) for key in _at(data, place.split(".")))
    component = data.get("component")
    if isinstance(component, Mapping) and "jobs" in component:
        declared = component.get("inputs") or {}
        inputs = data.get("inputs") or {}
        yield from ((f"{at}inputs.{n}", UNDECLARED) for n in inputs if n not in declared)
    for key in ("trial", "component"):
        if isinstance(data.get(key), Mapping):
            yield from ignored_keys(data[key], f"{at}{key}.")
    for name, step in (data.get("jobs") or {}).items():
        if isinstance(step, Mapping):
            yield from ignored_keys(step, f"{at}jobs.{name}.")


def job_notes(data: Mapping[str, Any]) -> list[str]:
    """A sentence for each reason, with the keys it is for."""
    keys: dict[str, list[str]] = {}
    for key, why in ignored_keys(data):
        keys.setdefault(why, []).append(key)
    notes = [f"no effect here: {', '.join(names)} ({why})" for why, names in keys.items()]
    for name in dict.fromkeys(BARE.findall(json.dumps(data, default=str))):
        hint = f"write `$[[--option ${{{{{name}}}}}]]`"
        notes.append(f"`$[[{name}]]` is the text `{name}` if the input is not given: {hint}")
    return notes


def _at(data: Any, steps: list[str]) -> Iterator[str]:
    """The dotted keys at a place that have a value."""
    if not steps:
        yield from [""] if data not in (None, "null") else []
    elif isinstance(data, Mapping):
        for name in data if steps[0] == "*" else {steps[0]} & data.keys():
            for rest in _at(data[name], steps[1:]):
                yield f"{name}.{rest}".rstrip(".")
