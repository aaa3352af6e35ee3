"""Requests to endpoints, and waiting for deployments."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from allranks.errors import AllranksError, ServerError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentAnswer, EndpointAnswer, EndpointKeys

_ENDPOINTS = "/api/v1/endpoints"
# Seconds between two looks at a deployment, and for an answer.
_LOOK, _ANSWER = 0.1, 300.0


class RequestFailed(AllranksError):
    """An endpoint answered with an error."""

    kind, http, exit_code = "request_failed", 502, 1


def invoke(
    endpoint: str,
    body: bytes,
    deployment: str | None = None,
    content_type: str = "application/json",
) -> str:
    """Send a request to an endpoint; returns the body of the answer. Raises RequestFailed."""
    at = f"{_ENDPOINTS}/{quote(endpoint, safe='')}"
    made: EndpointAnswer = find_server.ask("GET", at)
    if made["scoring_uri"] is None:
        raise ServerError("the router is not up yet", hint=f"allranks endpoint show {endpoint}")
    headers = {"Content-Type": content_type}
    if made["auth_mode"] != "none":
        keys: EndpointKeys = find_server.ask("GET", f"{at}/keys")
        headers["Authorization"] = f"Bearer {keys['primary']}"
    if deployment is not None:
        headers["azureml-model-deployment"] = deployment
    where = urlsplit(made["scoring_uri"])
    connection = http.client.HTTPConnection(where.netloc, timeout=_ANSWER)
    try:
        connection.request("POST", where.path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(
            f"the router does not answer: {error}", where=made["scoring_uri"]
        ) from None
    finally:
        connection.close()
    if answer.status >= 400:
        raise _refused(endpoint, answer.status, text)
    return text


def _refused(endpoint: str, status: int, text: str) -> RequestFailed:
    try:
        error = json.loads(text)["error"]
        message, hint = str(error["message"]), error.get("hint")
    except (ValueError, KeyError, TypeError):
        message, hint = text.strip() or "no reason was given", None
    if status == 424:
        hint = f"the scoring script failed: allranks deployment logs NAME -e {endpoint}"
    return RequestFailed(f"{endpoint} answered {status}: {message}", hint=hint)


def wait(
    endpoint: str, name: str, on_look: Callable[[DeploymentAnswer], None], timeout: float
) -> DeploymentAnswer:
    """Wait until a deployment is ready or has failed; ``seen`` gets each look. Raises
    RequestFailed when it failed, and ServerError after ``timeout`` seconds."""
    at = f"{_ENDPOINTS}/{quote(endpoint, safe='')}/deployments/{quote(name, safe='')}"
    until = time.monotonic() + timeout
    while True:
        made: DeploymentAnswer = find_server.ask("GET", at)
        on_look(made)
        if made["state"] == "Ready":
            return made
        jobs = [replica["job"] for replica in made["replicas"]]
        hint = f"allranks deployment logs {name} -e {endpoint}"
        if made["state"] in ("Failed", "UpdateFailed"):
            raise RequestFailed(f"{endpoint}/{name} failed: {made['reason']}", hint=hint)
        if time.monotonic() > until:
            why = made["reason"] or (
                f"{jobs[0]} is not ready" if jobs else "no replica has started"
            )
            raise ServerError(f"{endpoint}/{name} is not ready yet: {why}", hint=hint)
        time.sleep(_LOOK)
