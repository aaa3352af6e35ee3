"""/mlflow: the one way to MLflow's server, which itself asks nobody who they are.

People show the home's token, as MLflow's clients do (MLFLOW_TRACKING_TOKEN), or as a password that
a browser asks for; jobs show their ranks' token, and do what `rules` lets them. Browsers show
a password whoever asks them to, so where a request says it comes from is looked at as well.
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

from allranks.errors import AllranksError, Forbidden, NotFound, Unauthorized
from allranks.plan import text
from allranks.server.auth.identity import Caller
from allranks.server.auth.roles import Person, Role
from allranks.server.dependencies import Services
from allranks.server.mlflow import rules
from allranks.server.mlflow.forward import Call, forward
from allranks.server.mlflow.runs import ours
from allranks.statuses import TERMINAL
from allranks.store.job_rows import JobRow
from allranks.store.metric_points import Point

log = logging.getLogger("allranks.mlflow")

PREFIX = "/mlflow"
# Bytes of JSON that are looked at; MLflow's clients send a megabyte at most.
_MOST = 8 << 20
# So many runs that jobs made are remembered by name.
_NAMES = 10_000
# Seconds a person's question waits for what the record knows to be there.
_CATCH_UP = 10.0

Messages = Callable[[], Awaitable[Any]]


class Refusal(Exception):
    """What to answer instead, in MLflow's words."""

    def __init__(self, status: int, code: str, message: str, headers: Any = None) -> None:
        super().__init__(message)
        body = {"error_code": code, "message": message}
        self.answer = JSONResponse(body, status, headers=headers)


class Proxy:
    """An application for what is below /mlflow; ``people``: those with the home's token, too."""

    def __init__(self, with_: Services, *, people: bool = True) -> None:
        self._people = people
        self._auth, self._called, self._records = with_.auth, with_.names, with_.records
        self._points, self._bell, self._tracking = with_.points, with_.bell, with_.tracking
        # What runs are called that jobs made, by the job's own run and theirs.
        self._names: dict[tuple[str, str], str] = {}
        # Logged models that jobs made, alike.
        self._owned: set[tuple[str, str]] = set()

    async def __call__(self, scope: Any, receive: Messages, send: Any) -> None:
        answer: Response
        try:
            await self._serve(scope, receive, send)
            return
        except Refusal as refusal:
            answer = refusal.answer
        except OSError as error:
            # Clients try these again, a while later and while.
            log.warning("MLflow's server did not answer: %s", error)
            body = {"error_code": "TEMPORARILY_UNAVAILABLE", "message": str(error)}
            answer = JSONResponse(body, 503)
        except AllranksError as error:
            # Not one of those that clients try again for minutes.
            said = f"{error} ({error.hint})" if error.hint else str(error)
            body = {"error_code": "NOT_IMPLEMENTED", "message": said}
            answer = JSONResponse(body, 501)
        await answer(scope, receive, send)

    async def _serve(self, scope: Any, receive: Messages, send: Any) -> None:
        headers = Headers(scope=scope)
        try:
            self._called.hold_to(headers)
        except Forbidden as error:
            raise Refusal(403, "PERMISSION_DENIED", error.message) from None
        who = self._who(headers.get("authorization"))
        if self._tracking is None:
            hint = "pip install 'allranks[mlflow]' where its server runs, and start that again"
            raise Refusal(501, "NOT_IMPLEMENTED", f"there is no MLflow: {hint}")
        path = _path(scope)
        if path == "":
            await RedirectResponse(PREFIX + "/")(scope, receive, send)
            return
        socket = await self._tracking.child.come()
        query = scope["query_string"].decode("latin-1")
        request = rules.Request(scope["method"], path, query)
        if isinstance(who, Person):
            if who.role < Role.MEMBER and not rules.only_asks(request):
                raise Refusal(403, "PERMISSION_DENIED", f"{who.name} may read, and change nothing")
            await self._caught_up()
            await self._pass(socket, request, headers, _body(receive), send)
        else:
            await self._for_job(who, socket, request, headers, receive, send)

    def _who(self, header: str | None) -> Caller | Person:
        """Who asks. Raises Refusal."""
        token = _token(header)
        with contextlib.suppress(Unauthorized):
            if self._people:
                return self._auth.person(token)
        try:
            return self._auth.rank(token)
        except Unauthorized:
            says = "the token does not match this server's: MLFLOW_TRACKING_TOKEN is that of "
            says += "ALLRANKS_HOME/token; in a browser it is the password"
            ask = {"www-authenticate": 'Basic realm="allranks: its token is the password"'}
            raise Refusal(401, "UNAUTHENTICATED", says, ask) from None

    async def _caught_up(self) -> None:
        """Who looks right after the start sees what there is."""
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
        begun = False

        async def sent(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await forward(socket, call, body if data is None else _whole(data), sent)
        except ConnectionError:
            await asyncio.to_thread(self._tracking.child.lost)
            if begun:  # the connection is all there is left to break off
                raise RuntimeError("MLflow's server broke off its answer") from None
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
            # Elsewhere: of megabytes it takes so long that others would notice.
            request = await run_in_threadpool(rules.translated, request, job, data)
        except ValueError:
            raise Refusal(400, "BAD_REQUEST", "the request is not JSON") from None
        if (found := await run_in_threadpool(text.flaw, request.body)) is not None:
            message = f"{found.where}: {found.message}"
            raise Refusal(400, "INVALID_PARAMETER_VALUE", message)
        verdict = rules.judge(request, job)
        refused = verdict.refused
        if refused := refused or await self._not_its(verdict, row, job):
            raise Refusal(403, "PERMISSION_DENIED", f"{refused} (it has its job's token)")
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
            await _said(answer, send)
            return
        told = rules.metrics(request)
        if not told:
            await self._pass(socket, request, headers, _body(receive), send)
            return
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self._pass(socket, request, headers, _body(receive), keep)
        if messages[0]["status"] < 300:
            # Before who told it knows that it was taken: else it would not tell it again.
            (run,) = verdict.runs
            called = await self._name(run, row, job)
            points = _points(told, f"{called}/" if called else "")
            await run_in_threadpool(self._points.add_metrics, row.id, row.record.attempt, points)
            self._bell.ring(row.name)
        for message in messages:
            await send(message)

    async def _not_its(self, verdict: rules.Verdict, row: JobRow, job: rules.Job) -> str:
        """Which run, model or trace that a request would change is another's; empty: none."""
        assert self._tracking is not None
        for run in verdict.runs:
            if await self._name(run, row, job) is None:
                return f"the run {run} is not one of this job's"
        owns = {"model": self._tracking.runs.owns_model, "trace": self._tracking.runs.owns_trace}
        several = {"model": verdict.models, "trace": verdict.traces}
        for what, each in ((what, each) for what, those in several.items() for each in those):
            if (job.ours, each) in self._owned:
                continue
            if not await run_in_threadpool(owns[what], each, row):
                return f"the {what} {each} is not one of this job's"
            if what == "model":  # a trace that nobody has begun may be another's yet
                self._owned.add((job.ours, each))
        return ""

    async def _live(self, who: Caller) -> JobRow:
        try:
            row = await run_in_threadpool(self._records.get, who.job)
        except NotFound as error:
            raise Refusal(403, "PERMISSION_DENIED", error.message) from None
        if row.record.status in TERMINAL or row.record.launch != who.launch:
            raise Refusal(403, "PERMISSION_DENIED", f"{who.job} is over, and its token with it")
        return row

    async def _name(self, run: str, row: JobRow, job: rules.Job) -> str | None:
        """What a run of the job's is called, its own by nothing; None for one of others."""
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
    """What follows /mlflow, as it was sent."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = str(raw.decode("latin-1").partition("?")[0])
    return path.removeprefix(PREFIX) if unquote(path).startswith(PREFIX) else "/"


def _token(header: str | None) -> str | None:
    """The header as ours are; of a name and password the password counts."""
    scheme, _, rest = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


async def _body(receive: Messages) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError("the client is gone")
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _read(receive: Messages) -> bytes:
    found = bytearray()
    async for piece in _body(receive):
        found += piece
        if len(found) > _MOST:
            raise Refusal(413, "INVALID_PARAMETER_VALUE", f"that is more than {_MOST} bytes")
    return bytes(found)


def _points(told: list[dict[str, Any]], prefix: str) -> list[tuple[str, Point]]:
    """MLflow has taken them: they are what they should be."""
    return [
        (
            prefix + str(each["key"]),
            Point(int(each.get("step") or 0), int(each["timestamp"]) / 1000, float(each["value"])),
        )
        for each in told
    ]


async def _said(answer: Mapping[str, Any], send: Any) -> None:
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
