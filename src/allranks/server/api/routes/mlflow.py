"""/mlflow: the authenticating proxy of MLflow's server, which has no authentication itself.

People use their token, in MLflow's clients (MLFLOW_TRACKING_TOKEN) or as the password in a browser.
Jobs use their ranks' token and are limited by `mlflow.rules`. Browsers send passwords with
cross-site requests, so Host and Origin are checked as well.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response

from allranks.api.routes import Role
from allranks.core import text
from allranks.errors import AllranksError, Forbidden, NotFound, Unauthorized
from allranks.server.auth.identity import Caller, bearer
from allranks.server.auth.roles import Person
from allranks.server.dependencies import Services
from allranks.server.http.forward import Call, body_of, forward
from allranks.server.jobs import mlflow_models
from allranks.server.mlflow import rules
from allranks.server.mlflow.runs import ours
from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import JobRow
from allranks.store.metric_points import Point

log = logging.getLogger("allranks.mlflow")

PREFIX = "/mlflow"
# The largest parsed JSON body in bytes; MLflow's clients send at most a megabyte.
_MOST = 8 << 20
# The most cached names of runs and owners of models.
_NAMES = 10_000
# Seconds that a person's request waits for the mirror's first pass.
_CATCH_UP = 10.0
# Seconds that a client which registers a model waits for our copy.
_COPY = 60.0

Messages = Callable[[], Awaitable[Any]]


class Refusal(Exception):
    """An error response in MLflow's format."""

    def __init__(self, status: int, code: str, message: str, headers: Any = None) -> None:
        super().__init__(message)
        body = {"error_code": code, "message": message}
        self.answer = JSONResponse(body, status, headers=headers)


class Proxy:
    """The application for /mlflow; with ``people`` it accepts people's tokens as well as ranks'."""

    def __init__(self, services: Services, *, people: bool = True) -> None:
        self._people = people
        self._auth, self._host_names, self._records = (
            services.auth,
            services.host_names,
            services.records,
        )
        self._points, self._annotations = services.points, services.annotations
        self._wakeups, self._tracking = services.wakeups, services.tracking
        self._models = services.models
        # Names of runs that jobs created, by (our id of the job's run, run).
        self._names: dict[tuple[str, str], str] = {}
        # Logged models that jobs created, as (our id of the job's run, model).
        self._owned: set[tuple[str, str]] = set()
        # Models that are being copied: the loop itself keeps no task alive.
        self._copying: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Messages, send: Any) -> None:
        answer: Response
        try:
            await self._serve(scope, receive, send)
            return
        except Refusal as refusal:
            answer = refusal.answer
        except OSError as error:
            # MLflow's clients retry this status.
            log.warning("MLflow's server did not answer: %s", error)
            body = {"error_code": "TEMPORARILY_UNAVAILABLE", "message": str(error)}
            answer = JSONResponse(body, 503)
        except AllranksError as error:
            # A status that MLflow's clients do not retry for minutes.
            message = f"{error} ({error.hint})" if error.hint else str(error)
            body = {"error_code": "NOT_IMPLEMENTED", "message": message}
            answer = JSONResponse(body, 501)
        await answer(scope, receive, send)

    async def _serve(self, scope: Any, receive: Messages, send: Any) -> None:
        headers = Headers(scope=scope)
        try:
            self._host_names.check(headers)
        except Forbidden as error:
            raise Refusal(403, "PERMISSION_DENIED", error.message) from None
        who = self._who(headers)
        if self._tracking is None:
            hint = (
                "run pip install 'allranks[mlflow]' on the server's machine and restart the server"
            )
            raise Refusal(501, "NOT_IMPLEMENTED", f"MLflow is not installed: {hint}")
        path = _path(scope)
        if path == "":
            await RedirectResponse(PREFIX + "/")(scope, receive, send)
            return
        socket = await self._tracking.child.ready()
        query = scope["query_string"].decode("latin-1")
        request = rules.Request(scope["method"], path, query)
        if isinstance(who, Person):
            if who.role < Role.MEMBER and not rules.is_read_only(request):
                raise Refusal(
                    403,
                    "PERMISSION_DENIED",
                    f"{who.name} has the role reader, which may not change anything",
                )
            if who.role < Role.ADMIN and rules.names_place(path):
                request = request._replace(body=await _kept_place(receive))
            await self._caught_up()
            if rules.registers(request):
                await self._register(None, socket, request, headers, receive, send)
            else:
                await self._pass(socket, request, headers, body_of(receive), send)
        else:
            await self._for_job(who, socket, request, headers, receive, send)

    def _who(self, headers: Headers) -> Caller | Person:
        """The caller. Raises Refusal."""
        shown = token(headers)
        with contextlib.suppress(Unauthorized):
            if self._people:
                return self._auth.person(shown)
        try:
            return self._auth.rank(shown)
        except Unauthorized:
            wrong = "no token was given"
            if bearer(shown):
                wrong = "the token does not match this server's"
            message = f"{wrong}: set MLFLOW_TRACKING_TOKEN to the one in ALLRANKS_HOME/token; "
            message += "in a browser use it as the password"
            challenge = {"www-authenticate": 'Basic realm="allranks: use the token as password"'}
            raise Refusal(401, "UNAUTHENTICATED", message, challenge) from None

    async def _caught_up(self) -> None:
        """Wait for the mirror's first pass, so that people see complete data after a start."""
        assert self._tracking is not None
        until = time.monotonic() + _CATCH_UP
        while not self._tracking.mirror.passed and time.monotonic() < until:
            await asyncio.sleep(0.05)

    async def _pass(
        self,
        socket: str,
        request: rules.Request,
        headers: Headers,
        body: AsyncIterator[bytes],
        send: Any,
    ) -> None:
        assert self._tracking is not None
        data = None
        if request.body is not None:
            data = (await run_in_threadpool(json.dumps, request.body)).encode()
        size = int(headers["content-length"]) if "content-length" in headers else None
        if size is None and "transfer-encoding" not in headers:
            size = 0
        target = request.path + (f"?{request.query}" if request.query else "")
        call = Call(request.method, target, headers.raw, size if data is None else len(data))
        started = False

        async def sent(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await forward(socket, call, body if data is None else _once(data), sent)
        except ConnectionError:
            await asyncio.to_thread(self._tracking.child.lost)
            if started:  # an answer was started: only closing the connection is left
                raise RuntimeError("the answer of MLflow's server ended early") from None
            raise

    # ------------------------------------------------------------ jobs

    async def _for_job(
        self,
        who: Caller,
        socket: str,
        request: rules.Request,
        headers: Headers,
        receive: Messages,
        send: Any,
    ) -> None:
        assert self._tracking is not None
        row = await self._live(who)
        kept = await run_in_threadpool(self._tracking.runs.of, row)
        job = rules.Job(row.name, ours(row), kept.run_id, kept.experiment_id, row.experiment)
        looks = not rules.is_file(request.path) and request.method not in ("GET", "HEAD")
        data = await _read(receive) if looks else None
        try:
            # In a thread: megabytes of JSON would block other requests.
            request = await run_in_threadpool(rules.translated, request, job, data)
        except ValueError:
            raise Refusal(400, "BAD_REQUEST", "the request is not JSON") from None
        if (flaw := await run_in_threadpool(text.flaw, request.body)) is not None:
            message = f"{flaw.where}: {flaw.message}"
            raise Refusal(400, "INVALID_PARAMETER_VALUE", message)
        verdict = rules.judge(request, job)
        refused = verdict.refused
        if refused := refused or await self._not_its(verdict, row, job):
            raise Refusal(403, "PERMISSION_DENIED", f"{refused} (the request has a job's token)")
        answer = verdict.answer
        request = verdict.request
        headers = Headers(raw=rules.headers(headers.raw, job))
        if verdict.makes_run and await run_in_threadpool(self._tracking.runs.take, job.run):
            answer = await run_in_threadpool(self._tracking.runs.get, "/runs/get", run_id=job.run)
        elif verdict.makes_run:
            request = rules.under(request, job)
        elif rules.uses_run(request, job):
            await run_in_threadpool(self._tracking.runs.take, job.run)
        if answer is not None:
            await _send_json(answer, send)
            return
        if rules.registers(request):
            await self._register(row, socket, request, headers, receive, send)
            return
        metrics, parameters = rules.metrics(request), rules.parameters(request)
        if not (metrics or parameters):
            await self._pass(socket, request, headers, body_of(receive), send)
            return
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self._pass(socket, request, headers, body_of(receive), keep)
        if messages[0]["status"] < 300:
            # Stored before the client gets its answer, so that it retries after a failure.
            (run,) = verdict.runs
            called = await self._name(run, row, job)
            prefix = f"{called}/" if called else ""
            points = _points(metrics, prefix)
            await run_in_threadpool(self._points.add_metrics, row.id, row.record.attempt, points)
            if parameters:
                new = {
                    prefix + str(parameter["key"]): str(parameter["value"])
                    for parameter in parameters
                }
                await run_in_threadpool(self._annotations.add_parameters, {row.id: new})
            self._wakeups.notify(row.name)
        for message in messages:
            await send(message)

    async def _register(
        self,
        row: JobRow | None,
        socket: str,
        request: rules.Request,
        headers: Headers,
        receive: Messages,
        send: Any,
    ) -> None:
        """Let MLflow register a version of a model, and register ours before it is answered."""
        assert self._tracking is not None
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self._pass(socket, request, headers, body_of(receive), keep)
        if messages[0]["status"] < 300:
            body = b"".join(each.get("body", b"") for each in messages)
            runs = self._tracking.runs
            args = (body, row, self._models, runs, self._records)
            copying = asyncio.create_task(asyncio.to_thread(mlflow_models.keep, *args))
            self._copying.add(copying)
            copying.add_done_callback(self._copied)
            # A client that waits for longer than this repeats the request.
            await asyncio.wait({copying}, timeout=_COPY)
        for message in messages:
            await send(message)

    def _copied(self, task: asyncio.Task[None]) -> None:
        self._copying.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a version of MLflow's registry was not registered", exc_info=error)

    async def _not_its(self, verdict: rules.Verdict, row: JobRow, job: rules.Job) -> str:
        """Why the job may not change a run, model or trace of the request; empty: it may."""
        assert self._tracking is not None
        for run in verdict.runs:
            if await self._name(run, row, job) is None:
                return f"the run {run} does not belong to this job"
        owns = {"model": self._tracking.runs.owns_model, "trace": self._tracking.runs.owns_trace}
        several = {"model": verdict.models, "trace": verdict.traces}
        for what, each in ((what, each) for what, those in several.items() for each in those):
            if (job.ours, each) in self._owned:
                continue
            if not await run_in_threadpool(owns[what], each, row):
                return f"the {what} {each} does not belong to this job"
            # Not cached: a trace that does not exist yet may become another job's.
            if what == "model":
                self._owned.add((job.ours, each))
        return ""

    async def _live(self, who: Caller) -> JobRow:
        try:
            row = await run_in_threadpool(self._records.get, who.job)
        except NotFound as error:
            raise Refusal(403, "PERMISSION_DENIED", error.message) from None
        if row.record.status in TERMINAL or row.record.launch != who.launch:
            raise Refusal(
                403, "PERMISSION_DENIED", f"{who.job} has ended, and its token is invalid"
            )
        return row

    async def _name(self, run: str, row: JobRow, job: rules.Job) -> str | None:
        """The name of a run of the job, empty for its own run; None for a run of others."""
        if run == job.run:
            return ""
        if (job.ours, run) not in self._names:
            assert self._tracking is not None
            name = await run_in_threadpool(self._tracking.runs.name_of, run, row)
            if name is None:
                return None
            if len(self._names) + len(self._owned) >= _NAMES:
                self._names.clear()
                self._owned.clear()
            self._names[job.ours, run] = name
        return self._names[job.ours, run]


def _path(scope: Any) -> str:
    """The raw path after /mlflow."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = str(raw.decode("latin-1").partition("?")[0])
    return path.removeprefix(PREFIX) if unquote(path).startswith(PREFIX) else "/"


def token(headers: Headers) -> str | None:
    """The Authorization header, or the password of basic authentication."""
    header = headers.get("authorization")
    scheme, _, rest = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _kept_place(receive: Messages) -> dict[str, Any]:
    """The body of a call, unless it sends MLflow's server, which has this server's rights, to other
    files or hosts. Raises Refusal."""
    try:
        body = await run_in_threadpool(rules.parse, await _read(receive))
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refusal(400, "BAD_REQUEST", "the body must be a JSON object")
    if rules.is_foreign_place(body):
        message = "only admins choose where MLflow's server keeps or finds files: leave it out"
        raise Refusal(403, "PERMISSION_DENIED", message)
    return body


async def _read(receive: Messages) -> bytes:
    data = bytearray()
    async for piece in body_of(receive):
        data += piece
        if len(data) > _MOST:
            raise Refusal(413, "INVALID_PARAMETER_VALUE", f"the body is larger than {_MOST} bytes")
    return bytes(data)


def _points(metrics: list[dict[str, Any]], prefix: str) -> list[tuple[str, Point]]:
    """The points of metrics that MLflow has accepted, so their format is valid."""
    return [
        (
            prefix + str(metric["key"]),
            Point(
                int(metric.get("step") or 0),
                int(metric["timestamp"]) / 1000,
                float(metric["value"]),
            ),
        )
        for metric in metrics
    ]


async def _send_json(answer: Mapping[str, Any], send: Any) -> None:
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
