"""Refuse requests whose text or numbers cannot be stored or shown again, before a route runs.

The middlewares check every URL and every JSON body of people's routes; agents' routes use ``parse``
for their bodies. Whatever `core.text` accepts can be stored in each database, sent as JSON and
printed.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allranks.core import text
from allranks.errors import AllranksError, UsageError
from allranks.server.http.error_responses import reply
from allranks.server.http.request_limits import LIMITS

_HINT = "send text in UTF-8 without NUL and lone surrogates, and finite numbers"
# URLs and bodies with names of files, which may be any bytes.
_FILES = re.compile(r"/api/v1/(?:data|jobs|models|states)/[^/]+/(?:files|checksums)/")
_BUNDLE = re.compile(r"/api/v1/(?:data|jobs|models|states)/[^/]+/bundle")
_MODELS = "/api/v1/models"
# Bodies that are not JSON.
_BLOBS = "/api/v1/blobs/"
# Larger bodies are parsed in a thread, so that they do not block other requests.
_LARGE = 1 << 16


def parse(body: bytes, *, names: bool = False) -> Any:
    """The JSON value in a body. With ``names`` its texts may be file names that are not UTF-8.
    Raises UsageError for a value that cannot be stored, TooLarge, ValueError for invalid JSON."""
    LIMITS.check_members(body)
    try:
        value = json.loads(body)
        flaw = text.flaw(value, names=names) if text.may_have_flaw(body) else None
    except RecursionError:
        flaw = text.Flaw(f"values nest more than {text.DEEPEST} deep", "")
    _refuse(flaw)
    return value


def check_address(scope: Scope) -> None:
    """Raise UsageError for a path or query that is not valid text; names of files are exempt."""
    raw = scope.get("raw_path") or scope["path"].encode(errors="surrogatepass")
    if not _FILES.match(scope["path"]):
        _check(unquote_to_bytes(raw), "path")
    _check(unquote_to_bytes(scope.get("query_string") or b""), "query")


def _check(part: bytes, where: str) -> None:
    try:
        message = text.flaw_of_text(part.decode())
    except UnicodeDecodeError as error:
        message = f"the {where} of the URL is not UTF-8: {error.reason}"
    if message:
        raise UsageError(message, where=where, hint=_HINT)


class CheckedAddress:
    """Middleware that refuses URLs with text that cannot be stored."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                check_address(scope)
                receive = await self._checked(scope, receive)
            except AllranksError as error:
                await reply(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        return receive


class CheckedJson(CheckedAddress):
    """Middleware that also refuses JSON bodies with values that cannot be stored."""

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        path = scope["path"]
        method = scope["method"]
        if method in ("GET", "HEAD") or (method == "PUT" and path.startswith(_BLOBS)):
            return receive
        body, last = await _read(receive)
        if len(body) > _LARGE:
            await run_in_threadpool(_check_body, path, body)
        else:
            _check_body(path, body)
        messages = [last if last["type"] != "http.request" else {**last, "body": body}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        return replay


async def _read(receive: Receive) -> tuple[bytes, Message]:
    """The whole body, and the message that ended it."""
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces), message


def _check_body(path: str, body: bytes) -> None:
    """Raise UsageError for values that cannot be stored. The route refuses invalid JSON itself."""
    try:
        value = parse(body, names=path == _MODELS or bool(_BUNDLE.fullmatch(path)))
    except ValueError:
        return
    if path == _MODELS and isinstance(value, dict):  # only `files` has names of files
        _refuse(text.flaw({key: each for key, each in value.items() if key != "files"}))


def _refuse(flaw: text.Flaw | None) -> None:
    if flaw is not None:
        raise UsageError(flaw.message, where=flaw.where or None, hint=_HINT)
