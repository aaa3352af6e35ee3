"""Routes for batch endpoints and their deployments. Whoever invokes one submits a job."""

from __future__ import annotations

import secrets
import time
from typing import Any

from allranks.api.batch import (
    BatchDeploymentAnswer,
    BatchEndpointAnswer,
    BatchInvocation,
    BatchJob,
)
from allranks.errors import Conflict, MissingCode, NotFound, Problem, SpecError
from allranks.server.api.routes.jobs import create
from allranks.server.auth.roles import Who, require_own, shown_to
from allranks.server.dependencies import Connection, JsonBody, Services, ServicesDep
from allranks.server.endpoints.model_environment import environment_of, note_on, with_environment
from allranks.server.submission.submit import NO_SUBMISSION, Submission
from allranks.server.timestamps import iso_time
from allranks.spec import batch
from allranks.spec.endpoint import model_reference
from allranks.spec.fields.azureml_references import asset_of
from allranks.spec.pipeline.component import component_type, parse_component, with_components
from allranks.store.batch import BatchDeploymentRow, BatchEndpointRow
from allranks.store.jobs.job_rows import snapshots


def list_endpoints(services: ServicesDep, who: Who) -> list[BatchEndpointAnswer]:
    return [shown_to(who, _endpoint(row)) for row in services.batch.list()]


def show(name: str, services: ServicesDep, who: Who) -> BatchEndpointAnswer:
    return shown_to(who, _endpoint(services.batch.get(name)))


def put(name: str, data: JsonBody, services: ServicesDep, who: Who) -> BatchEndpointAnswer:
    """Create a batch endpoint, or change the keys that are given."""
    with services.batch.lock:
        row = services.batch.find(name)
        if row is None:
            _require_free(name, services)
            row = BatchEndpointRow(name, {}, {}, time.time(), who.name)
        require_own(who, name, row.created_by)
        spec = {**row.spec, **data, "name": name}
        default = batch.parse_batch_endpoint(spec).defaults.deployment_name
        if default is not None and default not in row.deployments:
            has = ", ".join(row.deployments) or "none yet"
            where, hint = "defaults.deployment_name", f"there are: {has}"
            raise SpecError(Problem(f"there is no deployment {default!r}", where, hint=hint))
        row = row._replace(spec=spec)
        services.batch.put(row)
    return _endpoint(row)


def delete(name: str, services: ServicesDep, who: Who) -> BatchEndpointAnswer:
    """Delete a batch endpoint with its deployments. Its jobs stay."""
    with services.batch.lock:
        row = services.batch.get(name)
        require_own(who, name, row.created_by)
        services.batch.delete(name)
    return _endpoint(row)


def put_deployment(
    name: str, deployment: str, data: JsonBody, services: ServicesDep, who: Who
) -> BatchDeploymentAnswer:
    """Create or replace a deployment: ``deployment`` is its spec, ``component`` that of its jobs,
    ``submitter`` the `base`, `tools` and `python` of those that are invoked over HTTP, as in a
    submission. With ``default`` it becomes the default one. Its code must be uploaded."""
    spec, component = data.get("deployment"), data.get("component")
    if not isinstance(spec, dict) or not isinstance(component, dict | str | None):
        raise SpecError(NO_SUBMISSION)
    before = services.batch.get(name).deployments.get(deployment)
    submitter = data.get("submitter", before.submitter if before and component else {})
    if not isinstance(submitter, dict) or not submitter.keys() <= {"base", "tools", "python"}:
        raise SpecError(NO_SUBMISSION)
    Submission.load({**submitter, "spec": {}})
    spec = {**spec, "name": deployment, "endpoint_name": name}
    made = batch.parse_batch_deployment(spec)
    if component is None and isinstance(made, batch.PipelineComponentBatchDeployment):
        component, spec["settings"] = _of_job(made, services)
    # As pipelines do, it has a copy of its components.
    resolved = with_components({"component": component}, services.components.find)["component"]
    if isinstance(component, str):
        spec["component"] = f"azureml:{resolved['name']}:{resolved['version']}"
    if component_type(resolved) != "pipeline":
        hint = "use it as a step of a pipeline component"
        raise SpecError(Problem("this is no pipeline component", "component", hint=hint))
    parse_component(resolved)
    with services.admission_lock, services.batch.lock:
        row = services.batch.get(name)
        require_own(who, name, row.created_by)
        if isinstance(made, batch.BatchDeployment):
            spec, resolved = _with_model(made, spec, resolved, services)
        if not all(map(services.blobs.is_complete, snapshots(resolved))):
            raise MissingCode("the code has not been uploaded yet", hint="upload it first")
        made_row = BatchDeploymentRow(deployment, spec, resolved, time.time(), who.name, submitter)
        row = row._replace(deployments={**row.deployments, deployment: made_row})
        if data.get("default"):
            row = row._replace(spec={**row.spec, "defaults": {"deployment_name": deployment}})
        services.batch.put(row)
    return _deployment(row, made_row)


def delete_deployment(
    name: str, deployment: str, services: ServicesDep, who: Who
) -> BatchDeploymentAnswer:
    """Delete a deployment. Without a default one, invocations name theirs."""
    with services.batch.lock:
        row = services.batch.get(name)
        require_own(who, f"{name}/{deployment}", row.created_by)
        if deployment not in row.deployments:
            hint = f"allranks deployment list -e {name}"
            raise NotFound(f"deployment {deployment!r} of {name!r} not found", hint=hint)
        spec = row.spec
        if batch.parse_batch_endpoint(spec).defaults.deployment_name == deployment:
            spec = {**spec, "defaults": {}}
        rest = {key: value for key, value in row.deployments.items() if key != deployment}
        services.batch.put(row._replace(spec=spec, deployments=rest))
    return _deployment(row, row.deployments[deployment])


def invoke(
    name: str, data: JsonBody, request: Connection, services: ServicesDep, who: Who
) -> BatchJob:
    """Score data, by a request as Azure ML's: ``properties`` has `InputData` and `OutputData`. The
    header `azureml-model-deployment` names another deployment than the default one."""
    row = services.batch.get(name)
    default = batch.parse_batch_endpoint(row.spec).defaults.deployment_name
    chosen = request.headers.get("azureml-model-deployment") or default
    made = row.deployments.get(chosen or "")
    if made is None:
        hint = f"there are: {', '.join(row.deployments) or 'none yet'}"
        if chosen is None:
            hint += f"; choose one: allranks endpoint update {name} --default NAME"
            raise NotFound(f"{name} has no default deployment", hint=hint)
        raise NotFound(f"{name} has no deployment {chosen}", hint=hint)
    inputs, outputs, settings = batch.of_request(data)
    job = batch.invocation(made.spec, made.component, inputs, outputs, settings)
    job["name"] = f"{name}-{secrets.token_hex(4)}"
    answer = create({**made.submitter, "spec": job}, services, who)
    return {**answer, **_invocation(name, answer["name"], answer["status"])}


def show_job(name: str, job: str, services: ServicesDep) -> BatchInvocation:
    """A job of an endpoint as Azure's requests follow it: ``properties`` has its `status`."""
    row = services.records.get(job)
    if (row.spec.get("tags") or {}).get(batch.ENDPOINT_TAG) != name:
        raise NotFound(f"{job} is no job of {name}", hint=f"allranks endpoint list-jobs {name}")
    return _invocation(name, job, str(row.record.status))


def _invocation(endpoint: str, job: str, status: str) -> BatchInvocation:
    address = f"/batch-endpoints/{endpoint}/jobs/{job}"
    return {"id": address, "name": job, "status": status, "properties": {"status": status}}


# ---------------------------------------------------------------- parts


def _require_free(name: str, services: Services) -> None:
    if any(row.name == name for row in services.endpoints.list()):
        hint = "take another name, or delete that one first"
        raise Conflict(f"{name!r} is an online endpoint", hint=hint)


def _of_job(
    made: batch.PipelineComponentBatchDeployment, services: Services
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component and the settings of a deployment of a pipeline job."""
    job = services.records.get(made.job_name).spec
    if job.get("type") != "pipeline":
        hint = "submit a pipeline first, and name it"
        raise SpecError(Problem(f"{made.job_name} is no pipeline", "job_definition", hint=hint))
    return batch.component_of_job(job), {**batch.settings_of_job(job), **made.settings}


def _with_model(
    made: batch.BatchDeployment,
    spec: dict[str, Any],
    component: dict[str, Any],
    services: Services,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both with the version of a registered model, and the step with the name of the model's files,
    under which scripts expect them."""
    step = component["jobs"].get(batch.STEP)
    if not isinstance(step, dict) or not isinstance(step.get("inputs"), dict):
        raise SpecError(NO_SUBMISSION)
    inputs, asset = dict(step["inputs"]), ""
    if (reference := model_reference(made.model)) is not None:
        row = services.models.versions.row(asset_of(reference, "model"))
        path, asset = (
            f"azureml:{row.name}:{row.version}",
            services.models.versions.registered_as(row),
        )
        spec = {**spec, "model": path}
        inputs["model"] = {"type": "custom_model", "path": path}
        if made.environment is None:
            own = environment_of(row, made.code_configuration is not None, services)
            step = with_environment(step, own)
    if asset:
        variables = {**(step.get("environment_variables") or {}), "ALLRANKS_MODEL_NAME": asset}
        step = {**step, "environment_variables": variables}
    jobs = {batch.STEP: {**step, "inputs": inputs}}
    return spec, {**component, "jobs": jobs}


def _endpoint(row: BatchEndpointRow) -> BatchEndpointAnswer:
    made = batch.parse_batch_endpoint(row.spec)
    return {
        "name": row.name,
        "type": "batch",
        "description": made.description,
        "tags": dict(made.tags),
        "default_deployment": made.defaults.deployment_name,
        "created_by": row.created_by,
        "created_at": iso_time(row.created_at) or "",
        "deployments": [
            _deployment(row, row.deployments[name]) for name in sorted(row.deployments)
        ],
        "notes": batch.notes(row.spec),
        "spec": row.spec,
    }


def _deployment(endpoint: BatchEndpointRow, row: BatchDeploymentRow) -> BatchDeploymentAnswer:
    model: Any = row.spec.get("model")
    is_pipeline = not isinstance(batch.parse_batch_deployment(row.spec), batch.BatchDeployment)
    step = {} if is_pipeline else row.component["jobs"][batch.STEP]
    return {
        "name": row.name,
        "endpoint": endpoint.name,
        "type": "pipeline" if is_pipeline else "model",
        "model": model if isinstance(model, str) else None,
        "component": row.component,
        "created_by": row.created_by,
        "created_at": iso_time(row.created_at) or "",
        "notes": [*batch.notes(row.spec), *note_on(step)],
        "spec": row.spec,
    }
