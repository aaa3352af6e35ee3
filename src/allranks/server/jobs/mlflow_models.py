"""Versions that MLflow's registry takes from the runs of jobs, as versions of our models."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from allranks.core.metrics import mlflow_run
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.events import Kind
from allranks.server.jobs.register_model import Models
from allranks.server.mlflow.runs import Made, Runs
from allranks.spec.model import parse
from allranks.store.files import trees
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

log = logging.getLogger("allranks.mlflow")

# The scheme of files that MLflow's server keeps, and the tag of prompts, which are no models.
_SERVED, _PROMPT = "mlflow-artifacts", "mlflow.prompt.is_prompt"


def keep(answer: bytes, row: JobRow | None, models: Models, runs: Runs, records: Records) -> None:
    """Register the version in MLflow's ``answer`` to `model-versions/create`; ``row``: the job
    that asked. Never raises for what MLflow took: the job's record says what was not registered,
    and a version that is not from a job's run is left out."""
    theirs = json.loads(answer)["model_version"]
    tags = {tag["key"]: tag["value"] for tag in theirs.get("tags", ())}
    name = f"{theirs['name']}:{theirs['version']}"
    note = ""
    try:
        # The version of a model that was logged outside of a run names no run.
        logged = str(theirs["source"]).removeprefix("models:/")
        of = runs.job_of(theirs.get("run_id", ""), logged)
        row = _job(of, records) or row
        if row is None or _PROMPT in tags:
            return
        about = {key: theirs[key] for key in ("name", "description") if theirs.get(key)}
        model = parse({**about, "path": theirs["source"], "tags": tags})
        files = _files(theirs, models, runs)
        ours = models.take(model, str(theirs["version"]), files, row)
        if (kept := f"{ours.name}:{ours.version}") != name:
            note = f"{name} of MLflow's registry is {kept} in `allranks model list`"
    except (AllranksError, OSError) as error:
        log.warning("%s of MLflow's registry was not registered: %s", name, error)
        why = "; ".join(str(error).splitlines())
        note = f"{name} of MLflow's registry is not in `allranks model list`: {why}"
    if row is not None and note:
        records.append(row.name, [row.event(Kind.NOTICE, data={"by": "mlflow", "message": note})])


def _job(of: Made | None, records: Records) -> JobRow | None:
    """The job, unless it was deleted."""
    if of is None:
        return None
    try:
        row = records.get(of.job)
    except NotFound:
        return None
    return row if mlflow_run.run_id(row.name, row.created_at) == of.ours else None


def _files(theirs: Mapping[str, Any], models: Models, runs: Runs) -> dict[str, trees.Source]:
    """The version's files, by their path in the model, where MLflow's server keeps them."""
    asked = {key: str(theirs[key]) for key in ("name", "version")}
    uri = str(runs.get("/model-versions/get-download-uri", **asked)["artifact_uri"])
    at = urlsplit(uri)
    if at.scheme != _SERVED:
        hint = "download them, then: allranks model create NAME --path FILES"
        raise UsageError("MLflow's server has not its files", where=uri, hint=hint)
    root = models.home.mlflow / "artifacts"
    return trees.model_files(root / at.path.lstrip("/"), root)
