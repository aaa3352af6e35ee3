"""All of people's routes: address, least role, and the function that answers.

The module of a function, below `routes`, is imported with the first request that needs it. Of two
routes that match an address, the first one counts.
"""

from __future__ import annotations

from typing import NamedTuple

from allranks.server.auth.roles import Role

PREFIX = "/api/v1"
_R, _M, _A = Role.READER, Role.MEMBER, Role.ADMIN


class Row(NamedTuple):
    """``address``: method, and path below `PREFIX`. ``status``: that of an answer without error."""

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


ROUTES = (
    Row("GET /server", _R, "jobs:server"),
    Row("GET /server/stop", _A, "jobs:would_stop"),
    Row("POST /server/stop", _A, "jobs:stop"),
    Row("PUT /server/front", _A, "jobs:front"),
    Row("POST /jobs", _M, "jobs:create", 201),
    Row("POST /jobs/list", _M, "jobs:create_list", 201),
    Row("POST /jobs/checks", _M, "jobs:check"),
    Row("POST /jobs/imported", _M, "imported:add"),
    Row("GET /jobs/{name}", _R, "jobs:show"),
    Row("GET /jobs/{name}/explanation", _R, "jobs:explanation"),
    Row("GET /jobs/{name}/plan", _R, "jobs:show_plan"),
    Row("GET /jobs/{name}/events", _R, "jobs:events"),
    Row("POST /jobs/{name}/cancel", _M, "jobs:cancel"),  # own jobs only: see `require_own`
    Row("POST /jobs/{name}/preempt", _M, "jobs:preempt"),  # as above
    Row("POST /jobs/{name}/kill", _M, "jobs:kill"),  # as above
    Row("POST /jobs/{name}/release", _M, "jobs:release"),  # as above
    Row("POST /jobs/{name}/restart", _M, "jobs:restart", 201),  # as above
    Row("GET /jobs/{name}/wait", _R, "jobs:wait"),
    Row("POST /jobs/{name}/stream", _R, "jobs:stream"),
    Row("GET /jobs/{name}/merged", _R, "merged_log:merged"),
    Row("POST /blobs/missing", _M, "jobs:missing"),
    Row("POST /blobs/discard", _M, "jobs:discard", 204),
    Row("PUT /blobs/pack", _M, "uploads:pack", 204),
    Row("PUT /blobs/{digest}", _M, "jobs:blob", 204),
    Row("GET /blobs/{digest}/part", _M, "uploads:part"),
    Row("POST /blobs/{digest}/part", _M, "uploads:adopt_part"),
    Row("PUT /blobs/{digest}/part", _M, "uploads:write_part"),
    Row("POST /uploads", _M, "uploads:make", 201),
    Row("POST /uploads/challenges", _M, "uploads:challenges"),
    Row("POST /uploads/proofs", _M, "uploads:proofs"),
    Row("GET /jobs", _R, "job_history:list_jobs"),
    Row("GET /changes", _R, "job_history:changes"),
    Row("GET /resolve", _R, "job_history:name_of"),
    Row("GET /compare", _R, "job_history:compare"),
    Row("PATCH /jobs/{name}", _M, "job_history:change"),  # own jobs only: see `require_own`
    Row("DELETE /jobs/{name}", _M, "job_history:delete"),  # as above
    Row("GET /jobs/{name}/files", _R, "job_files:files"),
    Row("GET /jobs/{name}/links", _R, "job_files:links"),
    Row("GET /jobs/{name}/files/{_:rest}", _R, "job_files:file"),
    Row("GET /models/{reference}/files/{_:rest}", _R, "job_files:file"),
    Row("GET /data/{version}/files", _R, "job_files:files"),
    Row("GET /data/{version}/links", _R, "job_files:data_links"),
    Row("GET /data/{version}/files/{_:rest}", _R, "job_files:file"),
    Row("GET /states/{state}/files/{_:rest}", _R, "job_files:file"),
    Row("POST /jobs/{name}/bundle", _R, "job_files:bundle"),
    Row("POST /models/{reference}/bundle", _R, "job_files:bundle"),
    Row("POST /data/{version}/bundle", _R, "job_files:bundle"),
    Row("POST /states/{state}/bundle", _R, "job_files:bundle"),
    Row("GET /jobs/{name}/checksums/{_:rest}", _R, "job_files:checksum"),
    Row("GET /models/{reference}/checksums/{_:rest}", _R, "job_files:checksum"),
    Row("GET /data/{version}/checksums/{_:rest}", _R, "job_files:checksum"),
    Row("GET /states/{state}/checksums/{_:rest}", _R, "job_files:checksum"),
    Row("GET /jobs/{name}/code", _R, "job_code:files"),
    Row("GET /jobs/{name}/code/{_:rest}", _R, "job_code:file"),
    Row("POST /jobs/{name}/stacks", _R, "stacks:stacks"),
    Row("POST /jobs/{name}/profile", _R, "profiles:create"),
    Row("GET /jobs/{name}/profile", _R, "profiles:show"),
    Row("DELETE /jobs/{name}/profile", _R, "profiles:stop"),
    Row("POST /jobs/{name}/channels", _M, "channels:create", 201),  # own jobs only, as above
    Row("POST /jobs/{name}/channels/{number}/{index}", _M, "channels:connect", 101),  # as above
    Row("GET /jobs/{name}/metrics", _R, "metrics:metrics"),
    Row("GET /jobs/{name}/metrics/summary", _R, "metrics:summary"),
    Row("GET /jobs/{name}/metrics/ranks", _R, "ranks:ranks"),
    Row("GET /jobs/{name}/ranks", _R, "rank_table:table"),
    Row("POST /jobs/{name}/metrics/follow", _R, "metrics:follow"),
    Row("GET /jobs/{name}/resources", _R, "metrics:resources"),
    Row("GET /top", _R, "metrics:top"),
    Row("GET /computes", _R, "computes:list_computes"),
    Row("POST /computes", _A, "computes:create", 201),
    Row("PATCH /computes/{name}", _A, "computes:update"),
    Row("DELETE /computes/{name}", _A, "computes:delete"),
    Row("PUT /computes/default", _A, "computes:set_default", 204),
    Row("PUT /computes/map", _A, "computes:stand_for", 204),
    Row("GET /computes/{name}", _R, "computes:show"),
    Row("GET /instances/map", _R, "instance_types:show_map"),
    Row("PUT /instances/map", _A, "instance_types:change_map", 204),
    Row("GET /environments", _R, "assets.environments:list_environments"),
    Row("POST /environments", _M, "assets.environments:create", 201),
    Row("GET /environments/map", _R, "assets.environments:show_map"),
    Row("PUT /environments/map", _A, "assets.environments:change_map", 204),
    Row("POST /environments/recipe", _R, "assets.environments:show_recipe"),
    Row("GET /environments/{reference}", _R, "assets.environments:show"),
    Row("DELETE /environments/{reference}", _A, "assets.environments:delete"),
    Row("POST /environments/{reference}/clone", _M, "assets.environments:clone", 201),
    Row("PUT /environments/{reference}/labels", _M, "assets.environments:label"),
    Row("GET /components", _R, "assets.components:list_components"),
    Row("POST /components", _M, "assets.components:create", 201),
    Row("GET /components/{reference}", _R, "assets.components:show"),
    Row("DELETE /components/{reference}", _A, "assets.components:delete"),
    Row("PUT /components/{reference}/labels", _M, "assets.components:label"),
    Row("GET /endpoints", _R, "endpoints:list_endpoints"),
    Row("POST /endpoints", _M, "endpoints:create", 201),
    Row("GET /endpoints/{name}", _R, "endpoints:show"),
    Row("PATCH /endpoints/{name}", _M, "endpoints:update"),
    Row("DELETE /endpoints/{name}", _M, "endpoints:delete"),
    Row("GET /endpoints/{name}/series", _R, "endpoints:series"),
    Row("GET /endpoints/{name}/keys", _M, "endpoints:show_keys"),
    Row("POST /endpoints/{name}/keys", _M, "endpoints:renew_key"),
    Row("POST /endpoints/{name}/deployments", _M, "endpoints:create_deployment", 201),
    Row("GET /endpoints/{name}/deployments/{deployment}", _R, "endpoints:show_deployment"),
    Row("PATCH /endpoints/{name}/deployments/{deployment}", _M, "endpoints:update_deployment"),
    Row("DELETE /endpoints/{name}/deployments/{deployment}", _M, "endpoints:delete_deployment"),
    Row("GET /batch-endpoints", _R, "batch:list_endpoints"),
    Row("GET /batch-endpoints/{name}", _R, "batch:show"),
    Row("PUT /batch-endpoints/{name}", _M, "batch:put"),
    Row("DELETE /batch-endpoints/{name}", _M, "batch:delete"),
    Row("POST /batch-endpoints/{name}/jobs", _M, "batch:invoke", 201),
    Row("PUT /batch-endpoints/{name}/deployments/{deployment}", _M, "batch:put_deployment"),
    Row("DELETE /batch-endpoints/{name}/deployments/{deployment}", _M, "batch:delete_deployment"),
    Row("GET /schedules", _R, "schedules:list_schedules"),
    Row("POST /schedules", _M, "schedules:create", 201),
    Row("GET /schedules/{name}", _R, "schedules:show"),
    Row("POST /schedules/{name}/pause", _M, "schedules:pause"),
    Row("POST /schedules/{name}/resume", _M, "schedules:resume"),
    Row("POST /schedules/{name}/trigger", _M, "schedules:trigger"),
    Row("POST /schedules/{name}/runs", _M, "schedules:run"),
    Row("DELETE /schedules/{name}", _M, "schedules:delete"),
    Row("GET /datastores", _R, "assets.data:list_datastores"),
    Row("POST /datastores", _A, "assets.data:create_datastore", 201),
    Row("GET /datastores/{name}", _R, "assets.data:show_datastore"),
    Row("DELETE /datastores/{name}", _A, "assets.data:delete_datastore"),
    Row("PUT /datastores/{name}/default", _A, "assets.data:set_default_datastore"),
    Row("PUT /datastores/{name}/uploads", _M, "assets.data:receive_uploads"),
    Row("GET /data", _R, "assets.data:list_data"),
    Row("POST /data", _M, "assets.data:create_data", 201),
    Row("POST /data/checks", _M, "assets.data:check_data", 204),
    Row("GET /data/map", _R, "assets.data:show_map"),
    Row("PUT /data/map", _A, "assets.data:change_map", 204),
    Row("GET /data/{reference}", _R, "assets.data:show_data"),
    Row("DELETE /data/{reference}", _A, "assets.data:delete_data"),
    Row("PUT /data/{reference}/labels", _M, "assets.data:label_data"),
    Row("GET /models", _R, "assets.models:list_models"),
    Row("POST /models", _M, "assets.models:register", 201),
    Row("GET /models/{reference}", _R, "assets.models:show"),
    Row("DELETE /models/{reference}", _A, "assets.models:delete"),
    Row("PUT /models/{reference}/labels", _M, "assets.models:label"),
    Row("GET /models/{reference}/manifest", _R, "assets.models:manifest"),
    Row("GET /states", _R, "assets.state:list_states"),
    Row("GET /states/{state}", _R, "assets.state:show"),
    Row("GET /states/{state}/manifest", _R, "assets.state:manifest"),
    # If their own job had it last.
    Row("POST /states/{state}/restore", _M, "assets.state:restore"),
    # Of their own jobs; named states: admins.
    Row("DELETE /states/{state}", _M, "assets.state:delete"),
    Row("POST /gc", _A, "gc:clear"),
    Row("GET /tokens", _A, "tokens:list_tokens"),
    Row("POST /tokens", _A, "tokens:create", 201),
    Row("DELETE /tokens/{name}", _A, "tokens:revoke", 204),
)
