"""The application that callers meet: find the deployment, wait for a turn, forward, count."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import json
import random
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from allranks.serve.access_log import AccessLog, quoted, quoted_again
from allranks.serve.balance import Deployment, NoReplica, NoTurn, Turn, Weights, Worker
from allranks.serve.protocol import CYCLE, send_whole
from allranks.serve.table import Site
from allranks.serve.upstream import Broken, Response, Unsent, head

PREFIX = b"/endpoints/"
# Bytes: bodies up to the first are read before the request is sent on, larger ones pass through.
_BUFFERED, _LARGEST = 1 << 20, 1 << 30
# Of an answer, that are read before the caller takes them.
_AHEAD = 1 << 20
# Replicas that a request is offered to.
_TRIES = 4
_DEPLOYMENT = b"azureml-model-deployment"
_PRIVATE = frozenset((b"authorization", b"host"))
_LOOPBACK = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?")
_ID = (b"x-request-id", b"x-ms-client-request-id")
# Others are replaced: strangers could fill the access log.
_ID_LENGTHS = range(1, 129)
# The key of the request scope that says whether other machines may have sent the request.
IS_PUBLIC = "allranks.is_public"


class Refusal(Exception):
    """An answer without a replica."""

    def __init__(self, status: int, message: str, hint: str, headers: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.status, self.hint, self.headers = status, hint, headers


class Gone(Exception):
    """The caller has closed the connection."""


class Reply:
    """The answer to a caller: ``status`` is None until it begins, ``size`` counts the bytes of its
    body. ``cycle``: what `send_whole` needs, if anything."""

    def __init__(self, send: Any, cycle: Any = None) -> None:
        self._send, self._cycle = send, cycle
        self.status: int | None = None
        self.deployment: bytes | None = None
        self.size = 0

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def piece(self, body: bytes, more: bool = True) -> None:
        self.size += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        if self._cycle is not None and send_whole(self._cycle, status, headers, body):
            self.status, self.size = status, len(body)
            return
        await self.start(status, headers)
        await self.piece(body, more=False)


class Call(NamedTuple):
    """A request: ``rest`` is its path at the replica, as it was sent, ``body`` its pieces if it is
    large, and ``gone`` returns when the caller has left, once the body was read."""

    scope: Any
    id: bytes
    rest: bytes
    body: bytes | AsyncIterator[bytes]
    reply: Reply
    gone: Callable[[], Coroutine[Any, Any, Any]]


class Place:
    """An endpoint as the router serves it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.weights, self.mirrors = Weights(site.traffic), Weights({})
        self.deployments: dict[str, Deployment] = {}

    def change(self, site: Site, sockets: Path) -> None:
        self.site = site
        if self.weights.percents != {n: p for n, p in site.traffic.items() if p > 0}:
            self.weights = Weights(site.traffic)
        rest = 100 - sum(site.mirror.values())
        mirrored = {**site.mirror, "": rest} if site.mirror else {}
        if self.mirrors.percents != {n: p for n, p in mirrored.items() if p > 0}:
            self.mirrors = Weights(mirrored)
        before, self.deployments = self.deployments, {}
        for route in site.routes:
            deployment = before.get(route.name)
            if deployment is None:
                deployment = Deployment(site.name, route, sockets)
            else:
                deployment.change(route)
            self.deployments[route.name] = deployment


class Router:
    """An ASGI application. ``sockets``: the folder of the replicas' sockets."""

    def __init__(self, sockets: Path, log: AccessLog | None = None) -> None:
        self._sockets, self._log = sockets, log
        self.places: dict[str, Place] = {}
        self._copies: set[asyncio.Task[None]] = set()

    def change(self, sites: list[Site]) -> None:
        """Serve these endpoints from now on; running requests end as they began."""
        before, self.places = self.places, {}
        for site in sites:
            place = before.get(site.name) or Place(site)
            place.change(site, self._sockets)
            self.places[site.name] = place

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = b"%032x" % random.getrandbits(128)
        for name in _ID:
            if len(headers.get(name, b"")) in _ID_LENGTHS:
                request_id = headers[name]
                break
        began = time.monotonic()
        reply = Reply(send, scope.get(CYCLE))
        try:
            await self._answer(scope, headers, request_id, receive, reply)
        except Refusal as refusal:
            if reply.status is None:  # else uvicorn closes the connection: it is not complete
                await _refuse(refusal, request_id, reply)
        except Gone:
            return
        finally:
            self._note(scope, request_id, reply, time.monotonic() - began)

    def _note(self, scope: Any, request_id: bytes, reply: Reply, spent: float) -> None:
        """A line of the access log, unless the endpoint has none."""
        path: bytes = scope["raw_path"]
        name = path.removeprefix(PREFIX).partition(b"/")[0]
        place = self.places.get(name.decode("latin-1")) if path.startswith(PREFIX) else None
        if self._log is None or (place is None or not place.site.logs):
            return
        # None: the caller has left before.
        status = "null" if reply.status is None else reply.status
        client = scope.get("client") or ("", 0)
        method = scope["method"].encode()
        # Not json.dumps: that would be a tenth of all that the router does for a request.
        self._log.write(
            f'{{"time": {time.time():.3f}, "client": {quoted_again(client[0].encode())}, '
            f'"endpoint": {quoted_again(name)}, "deployment": {quoted_again(reply.deployment)}, '
            f'"method": {quoted_again(method)}, "path": {quoted_again(path[:1000])}, '
            f'"status": {status}, "bytes": {reply.size}, "ms": {spent * 1000:.3f}, '
            f'"id": {quoted(request_id)}}}\n'
        )

    async def _answer(
        self, scope: Any, headers: dict[bytes, bytes], request_id: bytes, receive: Any, reply: Reply
    ) -> None:
        # As it was sent: decoded, it could bring lines of its own into the replica's request.
        path: bytes = scope["raw_path"]
        if path in (b"/", b"/health"):
            own = [(b"content-type", b"text/plain"), (b"content-length", b"3")]
            await reply.whole(200, own, b"ok\n")
            return
        name, _, rest = path.removeprefix(PREFIX).partition(b"/")
        place = self.places.get(name.decode("latin-1")) if path.startswith(PREFIX) else None
        if place is None:
            hint = "POST /endpoints/NAME/score; allranks endpoint list"
            raise Refusal(404, "there is no such endpoint", hint)
        _authorize(place.site, headers, scope.get(IS_PUBLIC, False))
        deployment = _chosen(place, headers)
        body = await _body(headers, receive)
        if isinstance(body, bytes) and (copied := place.mirrors.next()):
            self._copy(place.deployments.get(copied), scope, body, rest)
        gone = functools.partial(_gone, receive)
        await _forward(deployment, Call(scope, request_id, rest, body, reply, gone))

    def _copy(self, deployment: Deployment | None, scope: Any, body: bytes, rest: bytes) -> None:
        """Send a copy whose answer nobody waits for."""
        if deployment is None:
            return

        async def copy() -> None:
            with contextlib.suppress(Refusal):
                call = Call(scope, b"mirrored", rest, body, Reply(_nowhere), asyncio.Event().wait)
                await _forward(deployment, call)

        task = asyncio.create_task(copy())
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)

    def state(self) -> Any:
        """What the server is told of each deployment, by `ENDPOINT/NAME`."""
        return {
            f"{name}/{item.route.name}": _counts(item)
            for name, place in self.places.items()
            for item in place.deployments.values()
        }


# ---------------------------------------------------------------- parts of an answer


def _authorize(site: Site, headers: dict[bytes, bytes], is_public: bool) -> None:
    if site.keys is None:
        if is_public:  # whatever its Host says
            hint = "an endpoint for other machines needs auth_mode: key"
            raise Refusal(421, "without keys only this machine is answered", hint)
        # A page of the web may give its own name to 127.0.0.1, and so read answers.
        host = headers.get(b"host", b"localhost").lower()
        if not _LOOPBACK.fullmatch(host):
            hint = "call it by 127.0.0.1 or localhost; a proxy sends such a Host, or use keys"
            raise Refusal(421, "without keys only names of this machine are answered", hint)
        return
    kind, _, key = headers.get(b"authorization", b"").partition(b" ")
    digest = hashlib.sha256(key.strip()).hexdigest()
    # All are compared: the time tells nothing.
    matching = [hmac.compare_digest(digest, item) for item in site.keys]
    if kind.lower() != b"bearer" or not any(matching):
        hint = f"Authorization: Bearer KEY; allranks endpoint get-credentials {site.name}"
        raise Refusal(401, "the key is missing or wrong", hint, ((b"www-authenticate", b"Bearer"),))


def _chosen(place: Place, headers: dict[bytes, bytes]) -> Deployment:
    header = headers.get(_DEPLOYMENT)
    name = header.decode("latin-1") if header is not None else place.weights.next()
    chosen = place.deployments.get(name or "")
    if chosen is None and header is not None:
        hint = f"allranks deployment list -e {place.site.name}"
        raise Refusal(404, f"there is no deployment {name!r}", hint)
    if chosen is None:
        hint = f'allranks endpoint update {place.site.name} --traffic "NAME=100"'
        raise Refusal(404, "no deployment of this endpoint has traffic", hint)
    return chosen


async def _body(headers: dict[bytes, bytes], receive: Any) -> bytes | AsyncIterator[bytes]:
    """A small body as a whole; of a larger one that tells its length, its pieces."""
    length = headers.get(b"content-length")
    size = int(length) if length is not None else 0
    if size > _LARGEST:
        raise Refusal(413, "the body is larger than 1 GiB", "send addresses of large data")
    if size > _BUFFERED:
        return _pieces(receive)
    body, more = await _next(receive)
    if not more:
        return body
    pieces = [body]
    while more:
        body, more = await _next(receive)
        pieces.append(body)
        size += len(body)
        if size > _BUFFERED:
            raise Refusal(411, "a body over 1 MiB needs Content-Length", "send its length")
    return b"".join(pieces)


async def _next(receive: Any) -> tuple[bytes, bool]:
    """A piece of the body, and whether more follow. Raises Gone."""
    message = await receive()
    if message["type"] != "http.request":
        raise Gone
    return message.get("body", b""), message.get("more_body", False)


async def _pieces(receive: Any) -> AsyncIterator[bytes]:
    more = True
    while more:
        body, more = await _next(receive)
        yield body


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _forward(deployment: Deployment, call: Call) -> None:
    """Answer a call by a replica of the deployment. Raises Refusal."""
    came = deployment.come()
    try:
        # A replica that is gone has seen nothing of the request: another one may answer it.
        for _ in range(_TRIES):
            worker = await _turn(deployment)
            turn = Turn(deployment, worker)
            try:
                await _answered(deployment, turn, call)
                return
            except Unsent as error:
                worker.ready, worker.reason = False, str(error)
                if not isinstance(call.body, bytes):
                    break
            finally:
                turn.end()
        deployment.errors += 1
        raise Refusal(503, "the replicas are gone", _again(worker))
    finally:
        deployment.leave(came)


async def _answered(deployment: Deployment, turn: Turn, call: Call) -> None:
    """Raises Unsent, and Refusal."""
    worker = turn.worker
    try:
        async with asyncio.timeout(None) as limit:
            deployment.start(limit)
            await _exchange(deployment, turn, call, limit)
    except TimeoutError:
        deployment.errors += 1
        hint = "request_settings.request_timeout_ms is the limit"
        message = f"no answer within {deployment.route.timeout:g} s"
        raise Refusal(408, message, hint) from None
    except Broken as error:
        deployment.errors += 1
        worker.ready, worker.reason = False, str(error)
        message = f"the replica {worker.backend.job} ended before its answer"
        raise Refusal(502, message, _again(worker)) from None
    finally:
        deployment.end(limit)


async def _turn(deployment: Deployment) -> Worker:
    try:
        return await deployment.take()
    except NoTurn:
        deployment.refused += 1
        hint = "try again, or raise instance_count or request_settings"
        wait = str(random.randint(1, 3)).encode()
        raise Refusal(429, "all replicas are busy", hint, ((b"retry-after", wait),)) from None
    except NoReplica:
        deployment.refused += 1
        reasons = [item.reason for item in deployment.workers.values() if item.reason]
        why = f": {reasons[0]}" if reasons else ""
        hint = f"allranks deployment logs {deployment.route.name} -e {deployment.endpoint}"
        raise Refusal(503, f"no replica is ready{why}", hint, ((b"retry-after", b"1"),)) from None


async def _exchange(deployment: Deployment, turn: Turn, call: Call, limit: asyncio.Timeout) -> None:
    """One request to one replica, and its answer to the caller. Raises Unsent and Broken."""
    scope, worker = call.scope, turn.worker
    headers = [item for item in scope["headers"] if item[0] not in _PRIVATE]
    headers += [(b"host", b"localhost"), (b"x-request-id", call.id)]
    length = len(call.body) if isinstance(call.body, bytes) else _length(scope)
    target = b"/" + call.rest
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    connection = await worker.pool.take()
    try:
        request = head(scope["method"], target, headers, length)
        response = await connection.ask(request, call.body)
        deployment.end(limit)  # the answer has begun: it may stream as long as it likes
        await _relay(deployment, response, call, turn)
    except BaseException:
        connection.close()
        raise
    worker.pool.give(connection)


def _length(scope: Any) -> int:
    return int(dict(scope["headers"])[b"content-length"])


def _again(worker: Worker) -> str:
    return f"send the request again; allranks job explain {worker.backend.job} says what happened"


async def _relay(deployment: Deployment, response: Response, call: Call, turn: Turn) -> None:
    status, headers = response.status, [*response.headers]
    failed = dict(headers).get(b"x-ms-run-function-failed")
    if failed is not None:
        deployment.errors += 1
        if status >= 500:  # as Azure ML tells the model's own errors
            headers.append((b"ms-azureml-model-error-statuscode", str(status).encode()))
            headers.append((b"ms-azureml-model-error-reason", b"model_error"))
            status = 424
    elif status >= 500:
        deployment.errors += 1
    call.reply.deployment = name = deployment.route.name.encode()
    headers += [(b"x-request-id", call.id), (_DEPLOYMENT, name)]
    if model := turn.worker.backend.model:
        headers.append((b"allranks-model", model.encode()))
    if response.is_whole:
        turn.let_go()
        await call.reply.whole(status, headers, response.arrived())
        return
    await call.reply.start(status, headers)
    # uvicorn takes what is sent to a caller that has left: a stream would keep its turn.
    work = asyncio.create_task(_relay_body(response, call, turn))
    gone = asyncio.create_task(call.gone())
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Gone
        work.result()
    finally:
        work.cancel()
        gone.cancel()


async def _relay_body(response: Response, call: Call, turn: Turn) -> None:
    """Read ahead of the caller: one that is slow holds no turn."""
    ahead: deque[bytes] = deque()
    size = 0
    came, taken = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        nonlocal size
        async for piece in response.pieces():
            ahead.append(piece)
            size += len(piece)
            came.set()
            while size > _AHEAD:
                turn.let_go()
                taken.clear()
                await taken.wait()
        turn.let_go()

    reading = asyncio.create_task(read())
    reading.add_done_callback(lambda _: came.set())
    try:
        while ahead or not reading.done():
            came.clear()
            while ahead:
                piece = ahead.popleft()
                await call.reply.piece(piece)
                size -= len(piece)
                taken.set()
            if not reading.done():
                await came.wait()
        reading.result()
    finally:
        reading.cancel()
    await call.reply.piece(b"", more=False)


async def _refuse(refusal: Refusal, request_id: bytes, reply: Reply) -> None:
    error = {
        "message": str(refusal),
        "hint": refusal.hint,
        "request_id": request_id.decode("latin-1"),
    }
    own = [(b"content-type", b"application/json"), (b"x-request-id", request_id), *refusal.headers]
    body = json.dumps({"error": error}).encode()
    own.append((b"content-length", str(len(body)).encode()))
    await reply.whole(refusal.status, own, body)


async def _nowhere(_: Any) -> None:
    """The answer to a mirrored request."""


def _counts(deployment: Deployment) -> Any:
    times = deployment.times()

    def share(of: float) -> float | None:
        return round(times[min(len(times) - 1, int(of * len(times)))] * 1000, 3) if times else None

    return {
        "requests": deployment.requests,
        "errors": deployment.errors,
        "refused": deployment.refused,
        "running": deployment.running,
        "busy": deployment.busy,
        "waiting": deployment.waiting,
        "p50": share(0.5),
        "p95": share(0.95),
        "p99": share(0.99),
        "replicas": {
            job: {
                "ready": item.ready,
                "drains": item.backend.drains,
                "reason": None if item.ready else item.reason,
                "running": item.running + item.streams,
                "failures": item.failures,
            }
            for job, item in deployment.workers.items()
        },
    }
