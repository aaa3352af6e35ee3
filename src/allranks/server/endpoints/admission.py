"""What a deployment is refused for before it is created or updated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from allranks.core.data.model_flavor import script_problem
from allranks.core.endpoints.record import Deployment, Endpoint, registered_model
from allranks.core.plan import Plan
from allranks.errors import Conflict, MissingCode, NotFound, Problem, Refused, SpecError
from allranks.server.dependencies import Services
from allranks.server.endpoints.model_environment import environment_of, with_environment
from allranks.server.loop.mailbox import ADDRESS
from allranks.server.submission.submit import NO_SUBMISSION, Submission, plan
from allranks.spec import endpoint as spec_of
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.jobs.job_rows import snapshots


def deployment(endpoint: Endpoint, data: Mapping[str, Any], services: Services) -> Deployment:
    """What a request asks for: ``deployment`` is its spec, ``submission`` the job of a replica.
    Raises SpecError, and what the job of a replica would be refused with."""
    spec, submission = data.get("deployment"), data.get("submission")
    if not isinstance(spec, dict) or not isinstance(submission, dict):
        raise SpecError(NO_SUBMISSION)
    spec, submission = dict(spec), dict(submission)
    spec["endpoint_name"] = endpoint.name
    compute = endpoint.spec.get("compute")
    if compute and not spec.get("compute"):
        spec["compute"] = compute.removeprefix("azureml:")
        submission["spec"] = {**Submission.load(submission).spec, "compute": spec["compute"]}
    made = spec_of.parse_deployment(spec)
    Submission.load(submission)
    asset = _asset(made, spec, submission, services)
    row = Deployment(endpoint.name, made.name, spec, submission, 1, 0.0, "", asset=asset)
    planned = require_capacity(row, services)
    if spec_of.starts_image(made) and services.clusters.kind_of(planned.engine).images:
        hint = "say what it starts: `command: PROGRAM --port $PORT`"
        raise SpecError(Problem("pods do not start the program of an image", "compute", hint=hint))
    if planned.server_address == ADDRESS:
        hint = f"allranks compute update {planned.compute} --server-address ADDRESS"
        why = "its nodes reach this server only through files, and so no request reaches them"
        raise SpecError(Problem(why, "compute", hint=hint))
    return row


def require_capacity(row: Deployment, services: Services) -> Plan:
    """The plan of a replica. Raises what its job would be refused with, and SpecError if this
    machine cannot hold all replicas, which count as the nodes of one job."""
    replica = Submission.load(row.submission)
    named = replica._replace(spec={**replica.spec, "name": row.name})
    planned = plan(named, services.planning())
    scale = row.scale
    replicas = scale.most if scale is not None else row.instances
    if services.clusters.runs_here(planned):
        engine = services.clusters.engine(services.clusters.cluster(planned))
        try:
            engine.admit(planned.gang._replace(nodes=replicas))
        except Refused as error:
            key = "scale_settings.max_instances" if scale is not None else "instance_count"
            why = f"{replicas} replicas do not fit this machine: {error.message}"
            raise SpecError(Problem(why, key, hint="request fewer replicas")) from None
    return planned


def _asset(
    made: spec_of.Deployment, spec: dict[str, Any], submission: dict[str, Any], services: Services
) -> str:
    """The name of a model's file or folder, as it was registered. A label is replaced by the
    version that it stands for now, so that all replicas have the same."""
    if isinstance(made.model, spec_of.InlineModel):
        return PurePath(made.model.path).name
    if (reference := spec_of.model_reference(made.model)) is None:
        return ""
    row = services.models.versions.row(asset_of(reference, "model"))
    if spec_of.loads_model(made):
        files = (entry.path for entry in services.models.versions.manifest(row))
        if problem := script_problem(f"{row.name}:{row.version}", files):
            raise SpecError(problem)
    spec["model"] = f"azureml:{row.name}:{row.version}"
    job = submission["spec"]
    inputs = job.get("inputs")
    if not isinstance(inputs, dict) or not isinstance(inputs.get("model"), dict):
        raise SpecError(NO_SUBMISSION)
    model = {**inputs["model"], "path": spec["model"]}
    submission["spec"] = {**job, "inputs": {**inputs, "model": model}}
    if made.environment is None and made.command is None:
        own = environment_of(row, made.code_configuration is not None, services)
        submission["spec"] = with_environment(submission["spec"], own)
    return services.models.versions.registered_as(row)


def require_code(submission: Mapping[str, Any], services: Services) -> None:
    """Raises MissingCode."""
    own = {submission["code"]} if submission.get("code") else set[str]()
    if not all(map(services.blobs.is_complete, own | {*snapshots(submission["spec"])})):
        raise MissingCode("the code has not been uploaded yet", hint="upload it first")


# Keys of a deployment that its replicas' job has, too.
_OF_REPLICAS = ("warm", "environment", "environment_variables", "resources", "compute")


def with_changes(row: Deployment, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A request for the deployment with other keys, and with the code that it has. Raises
    SpecError."""
    keys_of = {**row.spec, **changes, "name": row.name, "endpoint_name": row.endpoint}
    spec = {key: value for key, value in keys_of.items() if value is not None}
    job = spec_of.replica_job(spec_of.parse_deployment(spec))
    keys = {
        "command",
        *(key for key in _OF_REPLICAS if key in changes),
        *(["resources"] if "instance_type" in changes else []),
    }
    if "model" in changes:
        keys.add("inputs")
    kept = {key: value for key, value in row.submission["spec"].items() if key not in keys}
    replica = {**kept, **{key: job[key] for key in keys if key in job}}
    return {"deployment": spec, "submission": {**row.submission, "spec": replica}}


def require_model_of_before(row: Deployment, services: Services) -> None:
    """Raises Conflict if the model to return to was deleted: its replicas could not start."""
    reference = registered_model(row.previous.spec) if row.previous else ""
    if reference:
        try:
            services.models.versions.row(asset_of(reference, "model"))
        except NotFound:
            hint = f"allranks deployment update {row.name} -e {row.endpoint} -f FILE"
            what = f"{row.key} cannot go back: its model {reference} was deleted"
            raise Conflict(what, hint=hint) from None
