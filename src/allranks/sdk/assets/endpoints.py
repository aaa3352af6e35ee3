"""Requests to endpoints, and waiting for deployments."""

from __future__ import annotations

import builtins
import copy
import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from allranks import settings
from allranks.api import routes
from allranks.core.endpoints.patience import HOPELESS
from allranks.errors import AllranksError, Conflict, NotFound, ServerError, TimedOut, UsageError
from allranks.sdk.assets.computes import Poller
from allranks.sdk.assets.provisioning import provisioning_state
from allranks.sdk.connection import contexts, find_server
from allranks.sdk.jobs.follow import Following
from allranks.sdk.submit.send import send
from allranks.spec.endpoint import Deployment, Endpoint, path_of
from allranks.spec.fields.base import plain

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.endpoints import DeploymentAnswer, EndpointAnswer

# Keys that only the server tells.
_SHOWN = ("scoring_uri", "openapi_uri", "provisioning_state")
# Seconds that the creation of a deployment may take.
_PATIENCE = 1800.0
# Seconds between two looks at a deployment, and for an answer.
_LOOK, _ANSWER = 0.1, 300.0
# Seconds that a server has, once it has started, for its router and a replica.
_START = 30.0


class RequestFailed(AllranksError):
    """An endpoint answered with an error."""

    kind, http, exit_code = "request_failed", 502, 1


def invoke(
    endpoint: str,
    body: bytes,
    deployment: str | None = None,
    content_type: str = "application/json",
    local: bool = False,
) -> str:
    """Send a request to an endpoint; returns the body of the answer. ``local``: to its deployment
    where none has traffic, as Azure's local endpoints do. Raises RequestFailed."""
    made = _with_router(endpoint)
    if local and deployment is None and not any(made["traffic"].values()):
        deployment = _only_deployment(made)
    is_other = bool(find_server.of_another_home())
    is_far = is_other and made["public_uri"] is not None
    if is_other and not is_far and not _is_on_this_machine():
        # Its router is at an address of that machine, and here a program of others may be there.
        hint = "allranks server start --host ADDRESS there, with TLS; else send the request there"
        raise ServerError("the server has no address for requests", where=endpoint, hint=hint)
    uri = made["public_uri"] if is_far else made["scoring_uri"]
    if uri is None:
        raise ServerError("the router is not up yet", hint=f"allranks endpoint show {endpoint}")
    headers = {"Content-Type": content_type}
    if made["auth_mode"] != "none":
        keys = find_server.ask(routes.endpoint_keys, endpoint)
        headers["Authorization"] = f"Bearer {keys['primary']}"
    if deployment is not None:
        headers["azureml-model-deployment"] = deployment
    where = urlsplit(uri)
    path = where.path
    for item in made["deployments"]:
        if item["name"] == deployment:
            route = path_of(item["spec"], "scoring_route") or "/score"
            path = f"/endpoints/{endpoint}{route}"
    connection = http.client.HTTPConnection(where.netloc, timeout=_ANSWER)
    try:
        if is_far:
            with find_server.connect() as client:
                connection.sock = client.beside(f"https://{where.netloc}", _ANSWER)
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        hint = "try it again: a server that has just started starts its router first"
        message = f"the router does not answer: {error}"
        raise ServerError(message, where=uri, hint=hint) from None
    finally:
        connection.close()
    if answer.status >= 400:
        by = answer.getheader("azureml-model-deployment") or "NAME"
        raise _refused(endpoint, by, answer.status, text)
    return text


def _only_deployment(made: EndpointAnswer) -> str | None:
    names = [item["name"] for item in made["deployments"]]
    if len(names) > 1:
        hint = f"--deployment-name NAME (deployment_name=…): {', '.join(names)}"
        raise UsageError(f"{made['name']} has several deployments, none with traffic", hint=hint)
    return names[0] if names else None


def _is_on_this_machine() -> bool:
    """Whether the server is, or a tunnel to it."""
    server = contexts.chosen()
    return server is None or urlsplit(server.url).hostname in ("localhost", "127.0.0.1", "::1")


def _refused(endpoint: str, deployment: str, status: int, text: str) -> RequestFailed:
    try:
        error = json.loads(text)["error"]
        message, hint = str(error["message"]), error.get("hint")
    except (ValueError, KeyError, TypeError):
        message, hint = text.strip() or "no reason was given", None
    if status == 424:
        hint = f"the scoring script failed: allranks deployment logs {deployment} -e {endpoint}"
    return RequestFailed(f"{endpoint} answered {status}: {message}", hint=hint)


def take_traffic(endpoint: str, deployment: str) -> None:
    """Send a deployment no more requests but those that name it."""
    traffic = find_server.ask(routes.show_endpoint, endpoint)["traffic"]
    if traffic.get(deployment):
        body = {"traffic": {**traffic, deployment: 0}}
        find_server.ask(routes.update_endpoint, endpoint, body=body)


def _with_router(endpoint: str) -> EndpointAnswer:
    """The endpoint. A server that starts with this call is given time for its router and for
    replicas, which ended with the last one."""
    is_new = not find_server.of_another_home() and not find_server.look(settings.home()).alive
    until = time.monotonic() + _START
    while True:
        made = find_server.ask(routes.show_endpoint, endpoint)
        deployments = [item for item in made["deployments"] if item["instances"]]
        is_ready = not is_new or any(item["ready"] for item in deployments)
        if (made["scoring_uri"] and is_ready) or not deployments or time.monotonic() > until:
            return made
        time.sleep(_LOOK)


class EndpointRecord(Endpoint):
    """An endpoint as the server has it. It may be changed and given to ``begin_create_or_update``
    again."""

    scoring_uri: str | None = None
    openapi_uri: str | None = None
    provisioning_state: str = ""

    @classmethod
    def of(cls, answer: EndpointAnswer) -> EndpointRecord:
        uri = answer["scoring_uri"]
        return cls(
            name=answer["name"],
            description=answer["description"],
            tags=answer["tags"],
            auth_mode=answer["auth_mode"],  # type: ignore[arg-type]  # checked
            traffic=answer["traffic"],
            mirror_traffic=answer["mirror_traffic"],
            scoring_uri=uri,
            openapi_uri=uri and uri.removesuffix("/score") + "/swagger.json",
            provisioning_state=provisioning_state(answer["state"]),
        )


class DeploymentRecord:
    """A deployment as the server has it: the keys of ``allranks deployment show --json`` and of its
    file as attributes. Those of its file may be changed, and the record be given to
    ``begin_create_or_update`` again; its paths then start in the working folder."""

    def __init__(self, answer: DeploymentAnswer) -> None:
        vars(self).update(_answer=answer, _spec=copy.deepcopy(answer["spec"]))

    @property
    def provisioning_state(self) -> str:
        return provisioning_state(self._answer["state"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for mapping in (self.changed(), self._answer, self._spec):
            if name in mapping:
                return mapping[name]
        raise AttributeError(f"a deployment has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or (name not in Deployment.model_fields and name not in self._spec):
            hint = "the keys of its file can be changed"
            raise UsageError(f"{name} of a deployment does not change", hint=hint)
        self._spec[name] = plain(value)

    def changed(self) -> Document:
        """The keys of its file that have changed."""
        before = self._answer["spec"]
        return {key: value for key, value in self._spec.items() if value != before.get(key)}

    def to_dict(self) -> Document:
        """The keys of its file."""
        return dict(self._spec)

    def __repr__(self) -> str:
        return f"Deployment({self.endpoint}/{self.name}: {self.state})"


class Keys(NamedTuple):
    """Either one is accepted."""

    primary_key: str
    secondary_key: str


class OnlineEndpoints:
    """Operations on endpoints. All raise AllranksError with a hint."""

    def begin_create_or_update(
        self, endpoint: Endpoint, *, local: bool = False
    ) -> Poller[EndpointRecord]:
        """``local`` changes nothing: it runs on the server's machine anyway."""
        data = Endpoint(**_given(endpoint)).model_dump(mode="json", exclude_unset=True)
        try:
            answer = find_server.ask(routes.create_endpoint, body=data)
        except Conflict as conflict:
            try:
                answer = find_server.ask(routes.update_endpoint, endpoint.name, body=data)
            except NotFound:
                raise conflict from None  # a batch endpoint has the name
        return Poller(EndpointRecord.of(answer))

    def get(self, name: str, *, local: bool = False) -> EndpointRecord:
        return EndpointRecord.of(find_server.ask(routes.show_endpoint, name))

    def list(self, *, local: bool = False) -> builtins.list[EndpointRecord]:
        return [EndpointRecord.of(answer) for answer in find_server.ask(routes.list_endpoints)]

    def begin_delete(self, name: str, *, local: bool = False) -> Poller[None]:
        """Delete it with its deployments."""
        find_server.ask(routes.delete_endpoint, name)
        return Poller(None)

    def get_keys(self, name: str) -> Keys:
        keys = find_server.ask(routes.endpoint_keys, name)
        return Keys(keys["primary"], keys["secondary"])

    def begin_regenerate_keys(self, name: str, *, key_type: str = "primary") -> Poller[None]:
        find_server.ask(routes.renew_endpoint_key, name, body={"key": key_type.lower()})
        return Poller(None)

    def invoke(
        self,
        endpoint_name: str,
        *,
        request_file: str | Path | None = None,
        deployment_name: str | None = None,
        input_data: str | bytes | None = None,
        local: bool = False,
        **_: object,
    ) -> str:
        """The body of the answer to a request, which is the content of a file or ``input_data``.
        ``local``: to the only deployment, if none has traffic."""
        if request_file is not None:
            body = Path(request_file).read_bytes()
        elif input_data is not None:
            body = input_data.encode() if isinstance(input_data, str) else input_data
        else:
            raise UsageError("what is the request?", hint="give request_file or input_data")
        return invoke(endpoint_name, body, deployment_name, local=local)

    delete = begin_delete


class OnlineDeployments:
    """Operations on deployments. All raise AllranksError with a hint."""

    def begin_create_or_update(
        self,
        deployment: Deployment | DeploymentRecord,
        *,
        local: bool = False,
        skip_script_validation: bool = False,
        vscode_debug: bool = False,
        local_enable_gpu: bool = False,
        **_: object,
    ) -> Poller[DeploymentRecord]:
        """Create or update a deployment; returns when it is ready. Its paths start in the working
        folder. ``local`` and what is for it changes nothing."""
        if vscode_debug:
            hint = "leave it out; to enter a replica: allranks job shell REPLICA"
            raise UsageError("vscode_debug attaches no debugger here", hint=hint)
        # lazy: as in the commands
        from allranks.sdk.submit.deployment import on_compute_of_endpoint, prepare_deployment

        endpoint, name = deployment.endpoint_name, deployment.name
        with find_server.connect() as client:
            changed = deployment.changed() if isinstance(deployment, DeploymentRecord) else {}
            if changed.keys() == {"instance_count"}:
                client.ask(routes.update_deployment, endpoint, name, body=changed)
            else:
                data = on_compute_of_endpoint(_given(deployment), client)
                body, snapshots = prepare_deployment(data, Path.cwd())
                try:
                    send(client, body, snapshots, to=routes.create_deployment.at(endpoint))
                except Conflict:
                    to = routes.update_deployment.at(endpoint, name)
                    send(client, body, snapshots, to=to)
        ready = wait(endpoint, name, lambda answer: None, _PATIENCE)
        return Poller(DeploymentRecord(ready))

    def get(self, name: str, endpoint_name: str, *, local: bool = False) -> DeploymentRecord:
        return DeploymentRecord(find_server.ask(routes.show_deployment, endpoint_name, name))

    def list(self, endpoint_name: str, *, local: bool = False) -> builtins.list[DeploymentRecord]:
        answer = find_server.ask(routes.show_endpoint, endpoint_name)
        return [DeploymentRecord(deployment) for deployment in answer["deployments"]]

    def begin_delete(self, name: str, endpoint_name: str, *, local: bool = False) -> Poller[None]:
        """``local``: also while it has traffic, as Azure's local deployments have none to lose."""
        if local:
            take_traffic(endpoint_name, name)
        find_server.ask(routes.delete_deployment, endpoint_name, name)
        return Poller(None)

    delete = begin_delete

    def get_logs(self, name: str, endpoint_name: str, lines: int = 50, **_: object) -> str:
        """The last lines that its replicas have printed."""
        answer = find_server.ask(routes.show_deployment, endpoint_name, name)
        texts = []
        jobs = [replica["job"] for replica in answer["replicas"]]
        if answer["reason"] and answer["failed_job"]:
            jobs.insert(0, answer["failed_job"])
        for job in jobs:
            follow = Following(find_server.connect, job, request={"follow": False})
            texts += [piece["log"] for piece in follow.pieces()]
        return "".join(f"{line}\n" for line in "".join(texts).splitlines()[-lines:])


def _given(thing: Endpoint | Deployment | DeploymentRecord) -> dict[str, Any]:
    """The keys of a file that were set."""
    if isinstance(thing, DeploymentRecord):
        return thing.to_dict()
    data = thing.model_dump(mode="json", exclude_unset=True, by_alias=True)
    return {key: value for key, value in data.items() if key not in _SHOWN}


def why_not_ready(made: DeploymentAnswer) -> str:
    """Why its last replica failed, or what one waits for; empty if neither."""
    waits = [replica for replica in made["replicas"] if not replica["ready"]]
    return made["reason"] or (waits[0]["reason"] if waits else None) or ""


def _hint_of(made: DeploymentAnswer) -> str:
    """How to mend what its last replica failed of, to stand before another hint."""
    if not (made["reason"] and made["failed_job"]):
        return ""
    try:
        error = find_server.ask(routes.show_job, made["failed_job"])["error"]
    except NotFound:
        return ""
    hint = error and error.get("hint")
    return f"{hint}; more: " if hint else ""


def wait(
    endpoint: str, name: str, on_look: Callable[[DeploymentAnswer], None], timeout: float
) -> DeploymentAnswer:
    """Wait until a deployment is ready or has failed; ``on_look`` gets each look. Raises
    RequestFailed when it failed, or a replica of it again and again, and TimedOut after
    ``timeout`` seconds."""
    until = time.monotonic() + timeout
    while True:
        made = find_server.ask(routes.show_deployment, endpoint, name)
        on_look(made)
        if made["state"] == "Ready" and not made["takes_traffic"]:
            return made
        hint = f"{_hint_of(made)}allranks deployment logs {name} -e {endpoint}"
        stays = ""
        if made["takes_traffic"]:
            stays = f"; its traffic stays where it is until {endpoint}/{name} is ready"
        if made["state"] in ("Failed", "UpdateFailed"):
            what = f"no replica of {endpoint}/{name} starts: {made['reason']}"
            if made["state"] == "UpdateFailed":
                what = f"the update fails: {what}; the replicas of before go on"
                hint += f", or go back: allranks deployment update {name} -e {endpoint} --rollback"
            raise RequestFailed(what + stays, hint=hint)
        if made["state"] == "Degraded" and made["failures"] >= HOPELESS:
            count = f"{made['ready']} of {made['instances']} are ready"
            what = f"not all replicas of {endpoint}/{name} start ({count}): {made['reason']}"
            raise RequestFailed(what + stays, hint=hint)
        if time.monotonic() > until:
            why = why_not_ready(made) or "no replica has started"
            what = f"{endpoint}/{name} is not ready after {timeout:g} s: {why}"
            back = f"allranks deployment update {name} -e {endpoint} --rollback"
            hint = f"it goes on: allranks endpoint show {endpoint}; to take an update back: {back}"
            raise TimedOut(what + stays, hint=hint)
        time.sleep(_LOOK)
