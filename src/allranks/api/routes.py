"""All of people's routes: address, least role, the function that answers, and the
type of the answer.

The server registers the functions of `server/api/routes`; the module of a function is imported with
the first request that needs it. Clients call a route by its name here (`find_server.ask`,
`Client.ask`). Of two routes that match an address, the first one counts.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from allranks.errors import NotFound, UsageError

if TYPE_CHECKING:
    from allranks.api import assets, batch, computes, endpoints, jobs, metrics, schedules, server

Answer = TypeVar("Answer", covariant=True)

PREFIX = "/api/v1"
# Names of jobs and states, as in `spec`.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_SHOWN_BY = {
    "job": "`allranks job list` shows all jobs",
    "state": "`allranks state list` shows named states, with --own also those of jobs",
}


class Role(IntEnum):
    """Each role includes those before it."""

    READER = 1
    MEMBER = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()


class Route(NamedTuple, Generic[Answer]):
    """``address``: method, and path below `PREFIX`. ``function``: below `server.api.routes`.
    ``status``: that of an answer without error. An ``Answer`` of bytes is not JSON."""

    address: str
    role: Role
    function: str
    status: int = 200

    @property
    def method(self) -> str:
        return self.address.partition(" ")[0]

    @property
    def path(self) -> str:
        return PREFIX + self.address.partition(" ")[2]

    def at(self, *names: str, **query: object) -> tuple[str, str]:
        """Method and `url`, for calls whose body or answer is not JSON."""
        return self.method, self.url(*names, **query)

    def url(self, *names: str, **query: object) -> str:
        """The path with these names, and a query without the values that are None. Raises NotFound
        for names that cannot be, because a slash would change the address."""
        kind = self.address.split("/")[1].removesuffix("s")
        head, *rest = self.path.split("{")
        for name, part in zip(names, rest, strict=True):
            parameter, _, after = part.partition("}")
            if parameter == "_:rest":
                head += quote(name, errors="surrogateescape") + after
            else:
                head += quote(_checked(kind, name), safe="") + after
        values = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in query.items()
            if value is not None
        }
        words = urlencode(values, doseq=True)
        return f"{head}?{words}" if words else head


def _checked(kind: str, name: object) -> str:
    if not isinstance(name, str):
        hint = "use the `name` of what `create_or_update` returned; `list` returns all"
        message = f"the name of a {kind} must be a str, not {type(name).__name__}"
        raise UsageError(message, hint=hint)
    if kind in _SHOWN_BY and not _NAME.fullmatch(name):
        raise NotFound(f"{kind} {name!r} not found", hint=_SHOWN_BY[kind])
    if not name.strip(". ") or "/" in name:
        raise NotFound(f"{name!r} not found", hint=f"`allranks {kind} list`")
    return name


R, M, A = Role.READER, Role.MEMBER, Role.ADMIN

# fmt: off
show_server: Route[server.ServerAnswer] = Route("GET /server", R, "jobs:server")
jobs_to_stop: Route[list[str]] = Route("GET /server/stop", A, "jobs:would_stop")
stop_server: Route[server.StopAnswer] = Route("POST /server/stop", A, "jobs:stop")
open_front: Route[server.PublicEndpoint] = Route("PUT /server/front", A, "jobs:front")
create_job: Route[jobs.CreatedJob] = Route("POST /jobs", M, "jobs:create", 201)
create_jobs: Route[list[jobs.CreatedJob]] = Route("POST /jobs/list", M, "jobs:create_list", 201)
check_job: Route[list[str]] = Route("POST /jobs/checks", M, "jobs:check")
add_imported: Route[list[jobs.ImportedJob]] = Route("POST /jobs/imported", M, "imported:add")
show_job: Route[metrics.ShownJob] = Route("GET /jobs/{name}", R, "jobs:show")
job_explanation: Route[jobs.AnyExplanation] = Route(
    "GET /jobs/{name}/explanation", R, "jobs:explanation")
job_plan: Route[jobs.PlanAnswer] = Route("GET /jobs/{name}/plan", R, "jobs:show_plan")
job_events: Route[list[jobs.EventAnswer]] = Route("GET /jobs/{name}/events", R, "jobs:events")
# Own jobs only, as the next ones: see `require_own`.
cancel_job: Route[jobs.JobAnswer] = Route("POST /jobs/{name}/cancel", M, "jobs:cancel")
preempt_job: Route[jobs.JobAnswer] = Route("POST /jobs/{name}/preempt", M, "jobs:preempt")
kill_job: Route[jobs.JobAnswer] = Route("POST /jobs/{name}/kill", M, "jobs:kill")
release_job: Route[jobs.JobAnswer] = Route("POST /jobs/{name}/release", M, "jobs:release")
restart_job: Route[jobs.RestartedJob] = Route("POST /jobs/{name}/restart", M, "jobs:restart", 201)
wait_for_job: Route[jobs.JobAnswer] = Route("GET /jobs/{name}/wait", R, "jobs:wait")
stream_job: Route[bytes] = Route("POST /jobs/{name}/stream", R, "jobs:stream")
merged_log: Route[jobs.MergedLog] = Route("GET /jobs/{name}/merged", R, "merged_log:merged")
missing_blobs: Route[list[str]] = Route("POST /blobs/missing", M, "jobs:missing")
discard_blobs: Route[None] = Route("POST /blobs/discard", M, "jobs:discard", 204)
put_pack: Route[None] = Route("PUT /blobs/pack", M, "uploads:pack", 204)
put_blob: Route[None] = Route("PUT /blobs/{digest}", M, "jobs:blob", 204)
blob_part: Route[assets.PartAnswer] = Route("GET /blobs/{digest}/part", M, "uploads:part")
adopt_part: Route[assets.PartAnswer] = Route("POST /blobs/{digest}/part", M, "uploads:adopt_part")
put_part: Route[assets.WrittenPart] = Route("PUT /blobs/{digest}/part", M, "uploads:write_part")
create_upload: Route[assets.UploadAnswer] = Route("POST /uploads", M, "uploads:make", 201)
upload_challenges: Route[list[assets.Challenge | None]] = Route(
    "POST /uploads/challenges", M, "uploads:challenges")
upload_proofs: Route[list[bool]] = Route("POST /uploads/proofs", M, "uploads:proofs")
list_jobs: Route[list[jobs.ListedJob]] = Route("GET /jobs", R, "job_history:list_jobs")
note_visit: Route[server.VisitAnswer] = Route("POST /visit", R, "job_history:visit")
changes: Route[server.ChangesAnswer] = Route("GET /changes", R, "job_history:changes")
resolve_job: Route[jobs.ResolvedName] = Route("GET /resolve", R, "job_history:name_of")
compare_jobs: Route[jobs.ComparisonAnswer] = Route("GET /compare", R, "job_history:compare")
# Own jobs only, as the next one: see `require_own`.
update_job: Route[jobs.JobRecord] = Route("PATCH /jobs/{name}", M, "job_history:change")
delete_job: Route[jobs.DeletedJob] = Route("DELETE /jobs/{name}", M, "job_history:delete")
job_files: Route[list[jobs.FileAnswer]] = Route("GET /jobs/{name}/files", R, "job_files:files")
job_links: Route[list[str]] = Route("GET /jobs/{name}/links", R, "job_files:links")
job_file: Route[bytes] = Route("GET /jobs/{name}/files/{_:rest}", R, "job_files:file")
model_file: Route[bytes] = Route("GET /models/{reference}/files/{_:rest}", R, "job_files:file")
data_files: Route[list[jobs.FileAnswer]] = Route("GET /data/{version}/files", R, "job_files:files")
data_links: Route[list[jobs.LinkAnswer]] = Route(
    "GET /data/{version}/links", R, "job_files:data_links")
data_file: Route[bytes] = Route("GET /data/{version}/files/{_:rest}", R, "job_files:file")
state_file: Route[bytes] = Route("GET /states/{state}/files/{_:rest}", R, "job_files:file")
job_bundle: Route[bytes] = Route("POST /jobs/{name}/bundle", R, "job_files:bundle")
model_bundle: Route[bytes] = Route("POST /models/{reference}/bundle", R, "job_files:bundle")
data_bundle: Route[bytes] = Route("POST /data/{version}/bundle", R, "job_files:bundle")
state_bundle: Route[bytes] = Route("POST /states/{state}/bundle", R, "job_files:bundle")
job_checksum: Route[bytes] = Route("GET /jobs/{name}/checksums/{_:rest}", R, "job_files:checksum")
model_checksum: Route[bytes] = Route(
    "GET /models/{reference}/checksums/{_:rest}", R, "job_files:checksum")
data_checksum: Route[bytes] = Route(
    "GET /data/{version}/checksums/{_:rest}", R, "job_files:checksum")
state_checksum: Route[bytes] = Route(
    "GET /states/{state}/checksums/{_:rest}", R, "job_files:checksum")
job_code: Route[list[jobs.CodeFile]] = Route("GET /jobs/{name}/code", R, "job_code:files")
job_code_file: Route[bytes] = Route("GET /jobs/{name}/code/{_:rest}", R, "job_code:file")
job_stacks: Route[jobs.StacksAnswer] = Route("POST /jobs/{name}/stacks", R, "stacks:stacks")
start_profile: Route[jobs.ProfileAnswer] = Route("POST /jobs/{name}/profile", R, "profiles:create")
show_profile: Route[jobs.ProfileAnswer] = Route("GET /jobs/{name}/profile", R, "profiles:show")
stop_profile: Route[jobs.ProfileStopped] = Route("DELETE /jobs/{name}/profile", R, "profiles:stop")
# Own jobs only.
create_channel: Route[jobs.ChannelAnswer] = Route(
    "POST /jobs/{name}/channels", M, "channels:create", 201)
connect_channel: Route[bytes] = Route(
    "POST /jobs/{name}/channels/{number}/{index}", M, "channels:connect", 101)
job_metrics: Route[metrics.MetricsAnswer] = Route("GET /jobs/{name}/metrics", R, "metrics:metrics")
metrics_summary: Route[metrics.MetricsSummary] = Route(
    "GET /jobs/{name}/metrics/summary", R, "metrics:summary")
metrics_of_ranks: Route[metrics.RanksAnswer] = Route(
    "GET /jobs/{name}/metrics/ranks", R, "ranks:ranks")
job_ranks: Route[metrics.RankTable] = Route("GET /jobs/{name}/ranks", R, "rank_table:table")
follow_metrics: Route[metrics.MetricsNews] = Route(
    "POST /jobs/{name}/metrics/follow", R, "metrics:follow")
job_resources: Route[metrics.ResourcesAnswer] = Route(
    "GET /jobs/{name}/resources", R, "metrics:resources")
live_jobs: Route[list[metrics.LiveJob]] = Route("GET /top", R, "metrics:top")
list_computes: Route[computes.ComputesAnswer] = Route("GET /computes", R, "computes:list_computes")
create_compute: Route[computes.ChangedCompute] = Route("POST /computes", A, "computes:create", 201)
update_compute: Route[computes.ChangedCompute] = Route(
    "PATCH /computes/{name}", A, "computes:update")
delete_compute: Route[computes.DeletedCompute] = Route(
    "DELETE /computes/{name}", A, "computes:delete")
set_default_compute: Route[None] = Route("PUT /computes/default", A, "computes:set_default", 204)
map_computes: Route[None] = Route("PUT /computes/map", A, "computes:stand_for", 204)
show_compute: Route[computes.ShownCompute] = Route("GET /computes/{name}", R, "computes:show")
show_instance_map: Route[server.InstancesMap] = Route(
    "GET /instances/map", R, "instance_types:show_map")
map_instances: Route[None] = Route("PUT /instances/map", A, "instance_types:change_map", 204)
list_environments: Route[list[assets.EnvironmentAnswer]] = Route(
    "GET /environments", R, "assets.environments:list_environments")
create_environment: Route[assets.CreatedEnvironment] = Route(
    "POST /environments", M, "assets.environments:create", 201)
show_environment_map: Route[assets.EnvironmentMap] = Route(
    "GET /environments/map", R, "assets.environments:show_map")
map_environments: Route[None] = Route(
    "PUT /environments/map", A, "assets.environments:change_map", 204)
show_recipe: Route[assets.RecipeAnswer] = Route(
    "POST /environments/recipe", R, "assets.environments:show_recipe")
show_environment: Route[assets.EnvironmentAnswer] = Route(
    "GET /environments/{reference}", R, "assets.environments:show")
delete_environment: Route[assets.EnvironmentAnswer] = Route(
    "DELETE /environments/{reference}", A, "assets.environments:delete")
clone_environment: Route[assets.CreatedEnvironment] = Route(
    "POST /environments/{reference}/clone", M, "assets.environments:clone", 201)
label_environment: Route[assets.EnvironmentAnswer] = Route(
    "PUT /environments/{reference}/labels", M, "assets.environments:label")
list_components: Route[list[assets.ComponentAnswer]] = Route(
    "GET /components", R, "assets.components:list_components")
create_component: Route[assets.CreatedComponent] = Route(
    "POST /components", M, "assets.components:create", 201)
show_component: Route[assets.ComponentAnswer] = Route(
    "GET /components/{reference}", R, "assets.components:show")
delete_component: Route[assets.ComponentAnswer] = Route(
    "DELETE /components/{reference}", A, "assets.components:delete")
label_component: Route[assets.ComponentAnswer] = Route(
    "PUT /components/{reference}/labels", M, "assets.components:label")
list_endpoints: Route[list[endpoints.EndpointAnswer]] = Route(
    "GET /endpoints", R, "endpoints:list_endpoints")
create_endpoint: Route[endpoints.EndpointAnswer] = Route(
    "POST /endpoints", M, "endpoints:create", 201)
show_endpoint: Route[endpoints.EndpointAnswer] = Route("GET /endpoints/{name}", R, "endpoints:show")
update_endpoint: Route[endpoints.EndpointAnswer] = Route(
    "PATCH /endpoints/{name}", M, "endpoints:update")
delete_endpoint: Route[endpoints.EndpointAnswer] = Route(
    "DELETE /endpoints/{name}", M, "endpoints:delete")
endpoint_events: Route[list[endpoints.EndpointEvent]] = Route(
    "GET /endpoints/{name}/events", R, "endpoints:events")
endpoint_series: Route[list[endpoints.DeploymentSeries]] = Route(
    "GET /endpoints/{name}/series", R, "endpoints:series")
endpoint_keys: Route[endpoints.EndpointKeys] = Route(
    "GET /endpoints/{name}/keys", M, "endpoints:show_keys")
renew_endpoint_key: Route[endpoints.EndpointKeys] = Route(
    "POST /endpoints/{name}/keys", M, "endpoints:renew_key")
create_deployment: Route[endpoints.DeploymentAnswer] = Route(
    "POST /endpoints/{name}/deployments", M, "deployments:create", 201)
show_deployment: Route[endpoints.DeploymentAnswer] = Route(
    "GET /endpoints/{name}/deployments/{deployment}", R, "deployments:show")
update_deployment: Route[endpoints.DeploymentAnswer] = Route(
    "PATCH /endpoints/{name}/deployments/{deployment}", M, "deployments:update")
delete_deployment: Route[endpoints.DeploymentAnswer] = Route(
    "DELETE /endpoints/{name}/deployments/{deployment}", M, "deployments:delete")
list_batch_endpoints: Route[list[batch.BatchEndpointAnswer]] = Route(
    "GET /batch-endpoints", R, "batch:list_endpoints")
show_batch_endpoint: Route[batch.BatchEndpointAnswer] = Route(
    "GET /batch-endpoints/{name}", R, "batch:show")
put_batch_endpoint: Route[batch.BatchEndpointAnswer] = Route(
    "PUT /batch-endpoints/{name}", M, "batch:put")
delete_batch_endpoint: Route[batch.BatchEndpointAnswer] = Route(
    "DELETE /batch-endpoints/{name}", M, "batch:delete")
invoke_batch_endpoint: Route[batch.BatchJob] = Route(
    "POST /batch-endpoints/{name}/jobs", M, "batch:invoke", 201)
show_batch_job: Route[batch.BatchInvocation] = Route(
    "GET /batch-endpoints/{name}/jobs/{job}", R, "batch:show_job")
put_batch_deployment: Route[batch.BatchDeploymentAnswer] = Route(
    "PUT /batch-endpoints/{name}/deployments/{deployment}", M, "batch:put_deployment")
delete_batch_deployment: Route[batch.BatchDeploymentAnswer] = Route(
    "DELETE /batch-endpoints/{name}/deployments/{deployment}", M, "batch:delete_deployment")
list_schedules: Route[list[schedules.ScheduleAnswer]] = Route(
    "GET /schedules", R, "schedules:list_schedules")
create_schedule: Route[schedules.ScheduleAnswer] = Route(
    "POST /schedules", M, "schedules:create", 201)
show_schedule: Route[schedules.ScheduleAnswer] = Route("GET /schedules/{name}", R, "schedules:show")
pause_schedule: Route[schedules.ScheduleAnswer] = Route(
    "POST /schedules/{name}/pause", M, "schedules:pause")
resume_schedule: Route[schedules.ScheduleAnswer] = Route(
    "POST /schedules/{name}/resume", M, "schedules:resume")
trigger_schedule: Route[schedules.ScheduleAnswer] = Route(
    "POST /schedules/{name}/trigger", M, "schedules:trigger")
run_schedule: Route[schedules.RunAnswer] = Route("POST /schedules/{name}/runs", M, "schedules:run")
delete_schedule: Route[schedules.ScheduleAnswer] = Route(
    "DELETE /schedules/{name}", M, "schedules:delete")
list_datastores: Route[list[assets.DatastoreAnswer]] = Route(
    "GET /datastores", R, "assets.data:list_datastores")
create_datastore: Route[assets.DatastoreAnswer] = Route(
    "POST /datastores", A, "assets.data:create_datastore", 201)
show_datastore: Route[assets.DatastoreAnswer] = Route(
    "GET /datastores/{name}", R, "assets.data:show_datastore")
delete_datastore: Route[assets.DatastoreAnswer] = Route(
    "DELETE /datastores/{name}", A, "assets.data:delete_datastore")
set_default_datastore: Route[assets.DatastoreAnswer] = Route(
    "PUT /datastores/{name}/default", A, "assets.data:set_default_datastore")
receive_uploads: Route[assets.UploadFolder] = Route(
    "PUT /datastores/{name}/uploads", M, "assets.data:receive_uploads")
list_data: Route[list[assets.DataAnswer]] = Route("GET /data", R, "assets.data:list_data")
create_data: Route[assets.CreatedData] = Route("POST /data", M, "assets.data:create_data", 201)
check_data: Route[None] = Route("POST /data/checks", M, "assets.data:check_data", 204)
show_data_map: Route[dict[str, str]] = Route("GET /data/map", R, "assets.data:show_map")
map_data: Route[None] = Route("PUT /data/map", A, "assets.data:change_map", 204)
show_data: Route[assets.DataAnswer] = Route("GET /data/{reference}", R, "assets.data:show_data")
delete_data: Route[assets.DataAnswer] = Route(
    "DELETE /data/{reference}", A, "assets.data:delete_data")
label_data: Route[assets.DataAnswer] = Route(
    "PUT /data/{reference}/labels", M, "assets.data:label_data")
list_models: Route[list[assets.ModelAnswer]] = Route("GET /models", R, "assets.models:list_models")
create_model: Route[assets.CreatedModel] = Route("POST /models", M, "assets.models:register", 201)
show_model: Route[assets.ModelAnswer] = Route("GET /models/{reference}", R, "assets.models:show")
delete_model: Route[assets.ModelAnswer] = Route(
    "DELETE /models/{reference}", A, "assets.models:delete")
label_model: Route[assets.ModelAnswer] = Route(
    "PUT /models/{reference}/labels", M, "assets.models:label")
model_manifest: Route[list[assets.ModelFile]] = Route(
    "GET /models/{reference}/manifest", R, "assets.models:manifest")
list_states: Route[list[assets.StateAnswer]] = Route("GET /states", R, "assets.state:list_states")
show_state: Route[assets.ShownState] = Route("GET /states/{state}", R, "assets.state:show")
state_manifest: Route[list[assets.StateEntry]] = Route(
    "GET /states/{state}/manifest", R, "assets.state:manifest")
# If their own job had it last.
restore_state: Route[assets.ShownState] = Route(
    "POST /states/{state}/restore", M, "assets.state:restore")
# Of their own jobs; named states: admins.
delete_state: Route[assets.ShownState] = Route("DELETE /states/{state}", M, "assets.state:delete")
collect_garbage: Route[server.GcAnswer] = Route("POST /gc", A, "gc:clear")
list_tokens: Route[list[server.TokenAnswer]] = Route("GET /tokens", A, "tokens:list_tokens")
show_caller: Route[server.CallerAnswer] = Route("GET /tokens/mine", R, "tokens:mine")
create_token: Route[server.CreatedToken] = Route("POST /tokens", A, "tokens:create", 201)
revoke_token: Route[None] = Route("DELETE /tokens/{name}", A, "tokens:revoke", 204)
# fmt: on

ROUTES: tuple[Route[Any], ...] = tuple(
    route for route in [*globals().values()] if isinstance(route, Route)
)
_BY_ADDRESS = {route.address: route for route in ROUTES}


def by_address(address: str) -> Route[Any]:
    """The route of a collection that is known when it runs, such as `GET /models/{reference}`."""
    return _BY_ADDRESS[address]


def that_shows(collection: str) -> Route[Any]:
    """The route of one thing of a collection."""
    return next(
        route for route in ROUTES if re.fullmatch(rf"GET /{collection}/{{\w+}}", route.address)
    )
