"""Endpoints: how they answer, a form to try a request, and one that deploys a model."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import httpx
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from allranks.api import routes
from allranks.errors import AllranksError, NotFound, ServerError, UsageError
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.messages import leave
from allranks.ui.pages.logs import logs_of

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentAnswer, EndpointAnswer

# Bytes of a log and of an answer that are shown; seconds for an answer, and for an example.
_TAIL, _SHOWN, _ANSWER, _EXAMPLE = 4096, 256 << 10, 300.0, 3.0
# Events that are shown.
_EVENTS = 30
# The file with an example that MLflow keeps beside a model.
_MLFLOWS = "serving_input_example.json"


class Answer(NamedTuple):
    """What an endpoint answered to a request of the form."""

    status: int
    text: str
    milliseconds: float
    by: str
    model: str
    id: str


async def page(request: Request) -> Response:
    session: Session = request.state.session
    online, batch = await asyncio.gather(
        session.get(routes.list_endpoints), session.get(routes.list_batch_endpoints)
    )
    return render.page(request, "endpoints.html", endpoints=online, batch=batch)


async def endpoint(request: Request) -> Response:
    session: Session = request.state.session
    name = request.path_params["name"]
    made, events = await asyncio.gather(
        session.get(routes.show_endpoint, name), session.get(routes.endpoint_events, name)
    )
    troubled = [
        item
        for item in made["deployments"]
        if item["state"] != "Ready" or (item["counts"] and item["counts"]["errors"])
    ]
    several = await asyncio.gather(*(_last_lines(session, item) for item in troubled))
    return render.page(
        request,
        "endpoint.html",
        endpoint=made,
        lines={item["name"]: last for item, last in zip(troubled, several, strict=True)},
        events=events[::-1][:_EVENTS],
        shares=_shares(made),
        was=_percents(request.query_params, [item["name"] for item in made["deployments"]]),
    )


def _shares(made: EndpointAnswer) -> dict[str, int]:
    """The traffic of each deployment, also what waits for one to be ready."""
    return made["traffic_when_ready"] or made["traffic"]


def _percents(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, int]:
    """The traffic of each deployment that a form or an address has."""
    texts = {name: str(values.get(f"traffic.{name}", "")) for name in names}
    return {name: int(text) for name, text in texts.items() if re.fullmatch(r"\d{1,3}", text)}


async def change_traffic(request: Request) -> Response:
    """Divide the traffic anew. The page that follows has what it was before, to undo it."""
    request.state.person.require_member()
    session: Session = request.state.session
    before = await session.get(routes.show_endpoint, request.path_params["name"])
    names = [item["name"] for item in before["deployments"]]
    percents = _percents(await request.form(), names)
    await session.call(routes.update_endpoint, before["name"], body={"traffic": percents})
    was = {f"traffic.{name}": _shares(before).get(name, 0) for name in names}
    place = f"/ui/endpoints/{quote(before['name'], safe='')}{render.with_query(was)}"
    return RedirectResponse(place, 303)


async def _last_lines(session: Session, made: DeploymentAnswer) -> tuple[str, str] | None:
    """The job of a replica that does not answer, or whose requests fail, and the end of its log;
    None if it has none."""
    ready = made["state"] == "Ready"  # and its requests fail
    jobs = [item["job"] for item in made["replicas"] if item["ready"] == ready]
    if made["reason"] and made["failed_job"]:
        jobs.append(made["failed_job"])
    if not jobs:
        return None
    job = jobs[-1]
    try:
        logs = logs_of(await session.get(routes.job_files, job))
        if not logs:
            return None
        async with session.stream(
            routes.job_file, job, logs[max(logs)], span=f"bytes=-{_TAIL}"
        ) as answer:
            data = await answer.aread() if answer.status_code != 416 else b""
    except AllranksError:
        return None
    text = data.decode(errors="replace")
    if len(data) == _TAIL:  # its first line may be cut
        text = text.partition("\n")[2]
    return (job, text) if text else None


async def series(request: Request) -> Response:
    session: Session = request.state.session
    return JSONResponse(await session.get(routes.endpoint_series, request.path_params["name"]))


async def send_request(request: Request) -> Response:
    """The form with an example (GET), or the answer to what it sends (POST)."""
    request.state.person.require_member()
    session: Session = request.state.session
    made = await session.get(routes.show_endpoint, request.path_params["name"])
    if made["scoring_uri"] is None:
        hint = f"allranks endpoint show {made['name']}"
        raise ServerError("the router is not up yet", hint=hint)
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    if made["auth_mode"] != "none":
        keys = await session.get(routes.endpoint_keys, made["name"])
        headers["authorization"] = f"Bearer {keys['primary']}"
    answer, example = None, False
    async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
        if request.method == "POST":
            form = await request.form()
            body = str(form.get("body", ""))
            deployment = str(form.get("deployment", ""))
            answer = await _answer(client, made["scoring_uri"], body, deployment)
        else:
            deployment = request.query_params.get("deployment", "")
            example_body = await _example(session, client, made)
            body, example = example_body or '{"input_data": []}', example_body is not None
    return render.page(
        request,
        "try.html",
        endpoint=made,
        deployment=deployment,
        body=body,
        is_example=example,
        answer=answer,
    )


async def _read(
    client: httpx.AsyncClient, method: str, uri: str, timeout: float, **more: Any
) -> tuple[httpx.Response, bytes]:
    """An answer, and of its body what is shown, as it was sent: replicas are programs of others.
    Raises HTTPError, TimeoutError."""
    data = b""
    async with (
        asyncio.timeout(timeout),
        client.stream(method, uri, timeout=timeout, **more) as answer,
    ):
        async for piece in answer.aiter_raw():
            data += piece
            if len(data) >= _SHOWN:
                break
    return answer, data[:_SHOWN]


async def _answer(client: httpx.AsyncClient, uri: str, body: str, deployment: str) -> Answer:
    """Raises ServerError."""
    headers = {"azureml-model-deployment": deployment} if deployment else {}
    began = time.monotonic()
    try:
        sent = body.replace("\r\n", "\n").encode()
        answer, data = await _read(client, "POST", uri, _ANSWER, content=sent, headers=headers)
    except (httpx.HTTPError, TimeoutError) as error:
        why = str(error) or type(error).__name__
        hint = "try it again: a server that has just started starts its router first"
        raise ServerError(f"the router does not answer: {why}", where=uri, hint=hint) from None
    spent = (time.monotonic() - began) * 1000
    text = data.decode(errors="replace")
    own = ("azureml-model-deployment", "allranks-model", "x-request-id")
    by, model, number = (answer.headers.get(name, "") for name in own)
    return Answer(answer.status_code, _pretty(text), round(spent, 1), by, model, number)


async def _example(session: Session, client: httpx.AsyncClient, made: EndpointAnswer) -> str | None:
    """A request that the model takes, by the schema of its script or by MLflow; None if neither
    has one."""
    try:
        address = str(made["scoring_uri"]).removesuffix("score") + "swagger.json"
        schema = json.loads((await _read(client, "GET", address, _EXAMPLE))[1])
        (body,) = schema["paths"]["/score"]["post"]["parameters"]
        return json.dumps(body["schema"]["example"], indent=2)
    except (httpx.HTTPError, TimeoutError, RecursionError, ValueError, LookupError, TypeError):
        pass
    for item in made["deployments"]:
        if not item["model"]:
            continue
        model = item["model"].removeprefix("azureml:")
        try:
            for file in await session.get(routes.model_manifest, model):
                if PurePosixPath(file["path"]).name == _MLFLOWS and file["size"] <= _SHOWN:
                    answer = await session.call(routes.model_file, model, file["path"])
                    return _pretty(answer.text)
        except AllranksError:
            continue
    return None


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


async def deploy(request: Request) -> Response:
    """The form (GET), or the deployment of a registered model (POST)."""
    request.state.person.require_member()
    session: Session = request.state.session
    if request.method == "POST":
        form = {key: str(value).strip() for key, value in (await request.form()).items()}
        name = await _deploy(session, request.query_params.get("model", ""), form)
        answer = RedirectResponse(f"/ui/endpoints/{quote(name, safe='')}", 303)
        leave(answer, "deploy", [name])
        return answer
    reference = request.query_params.get("model", "")
    model = await session.get(routes.show_model, reference)
    endpoints, environments, computes = await asyncio.gather(
        session.get(routes.list_endpoints),
        session.get(routes.list_environments),
        session.get(routes.list_computes),
    )
    reference = f"{model['name']}:{model['version']}"
    return render.page(
        request,
        "deploy.html",
        model=reference,
        endpoint=model["name"].replace("_", "-").replace(".", "-"),
        endpoints=[item["name"] for item in endpoints],
        environments=[f"azureml:{item['name']}:{item['version']}" for item in environments],
        computes=[item["name"] for item in computes["computes"]],
        command=f"allranks model deploy {reference} --script score.py --code FOLDER",
    )


async def _deploy(session: Session, model: str, form: dict[str, str]) -> str:
    """The name of the endpoint."""
    name, deployment = form.get("name", ""), form.get("deployment", "")
    data: dict[str, Any] = {
        "name": deployment,
        "endpoint_name": name,
        "model": f"azureml:{model}",
        "instance_count": form.get("instances") or "1",
    }
    data |= {key: form[key] for key in ("environment", "compute") if form.get(key)}
    if not name or not deployment:
        message = "an endpoint and a deployment need names"
        raise UsageError(message, where="deploy", hint="fill in both fields")
    try:
        made = await session.get(routes.show_endpoint, name)
        is_new = False
    except NotFound:
        made = (await session.call(routes.create_endpoint, body={"name": name})).json()
        is_new = True
    try:
        await run_in_threadpool(_send, session, data, made)
    except BaseException:
        if is_new:
            await session.call(routes.delete_endpoint, name)
        raise
    return name


def _send(session: Session, data: dict[str, Any], made: EndpointAnswer) -> None:
    from allranks.sdk.submit.deployment import prepare_deployment  # lazy: imports the models
    from allranks.sdk.submit.send import send  # lazy: as above

    if made["compute"]:
        data.setdefault("compute", made["compute"])
    body, snapshots = prepare_deployment(data, Path("/"))
    to = routes.create_deployment.at(made["name"])
    if any(item["name"] == data["name"] for item in made["deployments"]):
        to = routes.update_deployment.at(made["name"], data["name"])
    elif not any(made["traffic"].values()):
        body["all_traffic"] = True
    with session.client() as client:
        send(client, body, snapshots, to=to)
