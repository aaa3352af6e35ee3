"""Job files of a folder: whether each would be accepted, and what stands for what."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.importing import downloads
from allranks.cli.importing.finding import (
    NO,
    NOT_KNOWN,
    PARTLY,
    YES,
    Finding,
    mentions,
    prefix_of,
    uses,
)
from allranks.cli.submit.create import checked
from allranks.core.job.command_scripts import scripts
from allranks.errors import AllranksError, Problem, SpecError
from allranks.spec import batch, endpoint
from allranks.spec.pipeline.component import parse_component
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document

_DATASTORE = re.compile(r"azureml://(?:[^\s\"]+/)?datastores/\w+/")
_SCHEMA = re.compile(r"/([A-Za-z]+)\.schema\.json")
# What other files of Azure ML's command line are, by their schema, and the command that takes them.
_OTHERS = {
    "environment": "allranks environment create -f",
    "data": "allranks data create -f",
    "model": "allranks model create -f",
    "schedule": "allranks schedule create -f",
    "azureBlob": "allranks datastore create -f",
}
_JOBS = ("commandJob", "pipelineJob", "sweepJob")
_COMPONENTS = ("commandComponent", "pipelineComponent", "parallelComponent")


def look(file: Path, name: str) -> Finding | None:
    """What is found of a YAML file; None for one that is no file of Azure ML's."""
    try:
        data, lines = load.read(load.content(file), file=name)
    except SpecError as error:
        if not mentions(file, "azuremlschemas.", "azureml:"):
            return None
        return Finding(name, "YAML", NO, problems=_problems(error))
    kind = _kind(data)
    if kind in _COMPONENTS:
        try:
            parse_component(data, lines, name)
        except AllranksError as error:
            return Finding(name, kind, NO, problems=_problems(error))
        return Finding(name, kind, YES)
    if kind in _JOBS:
        return _job(file, name, kind, data)
    if kind in _OTHERS:
        if missing := _paths_not_there(file.parent, data):
            return Finding(name, kind, NO, problems=missing)
        return Finding(name, kind, YES, (f"{_OTHERS[kind]} {shlex.quote(name)}",))
    if kind.endswith(("Endpoint", "Deployment")):
        return _served(file.parent, name, kind, data, lines)
    if kind:
        hint = "allranks runs jobs and endpoints: registries and AutoML are not there"
        return Finding(name, kind, NO, problems=((f"a {kind} is not there", hint),))
    return None


def _kind(data: Document) -> str:
    """By its schema, or by its keys."""
    if (schema := _SCHEMA.search(str(data.get("$schema", "")))) is not None:
        return schema[1]
    if "inputs" in data and "type" in data and data.get("name") and "version" in data:
        return f"{data['type']}Component" if str(data["type"]).islower() else ""
    if isinstance(data.get("jobs"), dict) and "trial" not in data:
        return "pipelineJob" if data.get("type") == "pipeline" else ""
    if "trial" in data and "search_space" in data:
        return "sweepJob"
    return "commandJob" if "command" in data and ("environment" in data or "code" in data) else ""


def _job(file: Path, name: str, kind: str, data: Document) -> Finding:
    computes, addresses = uses(data)
    try:
        notes = checked(str(file), [], allow_large=True)
    except AllranksError as error:
        problems = _problems(error)
        only_maps = all(_is_missing(each) for each in getattr(error, "problems", ()) or (None,))
        runs = PARTLY if only_maps else NO
        return Finding(name, kind, runs, (), problems, computes, addresses)
    if lacking := _scripts_not_there(file.parent, data):
        hint = "set `code` to the folder that has it"
        problems = tuple((f"{script} is not in its code", hint) for script in lacking)
        return Finding(name, kind, NO, tuple(notes), problems, computes, addresses)
    code = file.parent / str(data.get("code") or ".")
    doubts = [*downloads.doubts(code)] if data.get("code") and code.is_dir() else []
    places = [*map(prefix_of, addresses), *_DATASTORE.findall(json.dumps(data, default=str))]
    if places:
        # Whoever runs it may not be allowed to read them, or they may be gone.
        doubts.insert(0, f"whether {', '.join(dict.fromkeys(places))} can be read")
    notes = [f"not tried: {'; '.join(doubts)}", *notes] if doubts else notes
    runs = NOT_KNOWN if doubts else YES
    return Finding(name, kind, runs, tuple(notes), (), computes, addresses)


def _served(
    folder: Path, name: str, kind: str, data: Document, lines: Mapping[str, int]
) -> Finding:
    """An endpoint or a deployment, online or batch."""
    is_deployment = kind.endswith("Deployment")
    try:
        if batch.is_batch(data):
            of_batch = batch.parse_batch_deployment if is_deployment else batch.parse_batch_endpoint
            of_batch(data, lines, name)
            notes = batch.notes(data)
        else:
            online = endpoint.parse_deployment if is_deployment else endpoint.parse_endpoint
            online(data, lines, name)
            notes = endpoint.notes(data)
    except AllranksError as error:
        return Finding(name, kind, NO, problems=_problems(error))
    script = data.get("code_configuration") or {}
    file = folder / str(script.get("code") or ".") / str(script.get("scoring_script") or ".")
    if not file.exists():
        hint = "set `code_configuration.code` to the folder that has it"
        return Finding(name, kind, NO, problems=((f"{file.name} is not in its code", hint),))
    words = f"{'deployment' if is_deployment else 'endpoint'} create -f {shlex.quote(name)}"
    command = f"allranks {words}"
    return Finding(name, kind, YES, (command, *notes))


def _paths_not_there(folder: Path, data: Document) -> tuple[tuple[str, str], ...]:
    """The files and folders of this machine that an asset's file names and that are missing."""
    build = data.get("build")
    paths = {key: data.get(key) for key in ("path", "conda_file")}
    if isinstance(build, dict):
        paths["build.path"] = build.get("path")
    hint = "it starts at the folder of this file: put it there, or change the path"
    return tuple(
        (f"{key}: {path!r} is not there", hint)
        for key, path in paths.items()
        if isinstance(path, str) and not _is_there(folder, path)
    )


def _is_there(folder: Path, path: str) -> bool:
    """Whether a path is one of this machine that exists, or an address."""
    plain = path.removeprefix("file://").removeprefix("file:")
    is_address = "://" in plain or plain.startswith(("azureml:", "runs:", "models:"))
    with contextlib.suppress(OSError, ValueError):
        return is_address or (folder / Path(plain).expanduser()).exists()
    return False


def _scripts_not_there(folder: Path, data: Document) -> list[str]:
    """The scripts that a job's command names and its code lacks, as far as that can be seen."""
    code = folder / str(data.get("code") or ".")
    if not isinstance(data.get("command"), str) or not code.is_dir():
        return []
    return [
        script.path
        for script in scripts(data["command"])
        if not (script.is_module or script.after or (code / script.folder / script.path).exists())
    ]


def _is_missing(problem: Problem | None) -> bool:
    """Whether only a name is missing, which a map or an asset gives."""
    if problem is None:
        return False
    key = (problem.where or "").rpartition(".")[2]
    mapped = key in ("compute", "default_compute", "environment", "image")
    return mapped or (problem.message.endswith(" not found") and "@" in problem.message)


def _problems(error: AllranksError) -> tuple[tuple[str, str], ...]:
    several = getattr(error, "problems", None)
    if not several:
        return ((error.message, error.hint or ""),)
    return tuple(
        (f"{f'line {e.line}, ' if e.line else ''}{e.where or ''}: {e.message}".strip(": "), e.hint)
        for e in several
    )
