"""Refuse requests whose text or numbers cannot be stored or shown again, before a route runs.

Every address is checked here, every JSON body of people's routes, and with ``parse`` every JSON
body of agents' routes. What `plan.text` lets through can be stored in each database, sent as JSON
and printed.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allranks.errors import AllranksError, TooLarge, UsageError
from allranks.plan import text
from allranks.server.http.error_responses import reply

_SMALLER = "data belongs into inputs, code into files"
_HINT = "send text in UTF-8 without NUL and lone surrogates, and finite numbers"
# Addresses and bodies that hold names of files, which may be any bytes.
_FILES = re.compile(r"/api/v1/(?:jobs|models|states)/[^/]+/(?:files|checksums)/")
_BUNDLE = re.compile(r"/api/v1/(?:jobs|models|states)/[^/]+/bundle")
_MODELS = "/api/v1/models"
# Bodies that are no JSON.
_BLOBS = "/api/v1/blobs/"
# A body of more bytes is parsed in a thread, so that other requests go on.
_LARGE = 1 << 16


def parse(body: bytes, *, names: bool = False) -> Any:
    """The JSON value in a body. With ``names`` its texts may be names of files that are not UTF-8.
    Raises UsageError for a value that cannot be stored, ValueError for what is not JSON."""
    try:
        value = json.loads(body)
        found = text.flaw(value, names=names)
    except RecursionError:
        found = text.Flaw(f"values nest more than {text.DEEPEST} deep", "")
    _refuse(found)
    return value


def check_address(scope: Scope) -> None:
    """Raises UsageError for a path or query that is not text, but for the names of files."""
    raw = scope.get("raw_path") or scope["path"].encode(errors="surrogatepass")
    if not _FILES.match(scope["path"]):
        _check(unquote_to_bytes(raw), "path")
    _check(unquote_to_bytes(scope.get("query_string") or b""), "query")


def _check(part: bytes, where: str) -> None:
    try:
        message = text.flaw_of_text(part.decode())
    except UnicodeDecodeError as error:
        message = f"the {where} of the address is not UTF-8: {error.reason}"
    if message:
        raise UsageError(message, where=where, hint=_HINT)


class CheckedAddress:
    """An application whose routes see no address that cannot be stored."""

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
            except HTTPException as error:  # the body is too large: see `limits`
                await reply(TooLarge(error.detail, hint=_SMALLER))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        return receive


class CheckedJson(CheckedAddress):
    """An application whose routes see no JSON body that cannot be stored, either."""

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

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        return again


async def _read(receive: Receive) -> tuple[bytes, Message]:
    """The whole body, and the message that ended it."""
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces), message


def _check_body(path: str, body: bytes) -> None:
    """Raises UsageError. What is not JSON is the route's to refuse, in its own words."""
    try:
        value = parse(body, names=path == _MODELS or bool(_BUNDLE.fullmatch(path)))
    except ValueError:
        return
    if path == _MODELS and isinstance(value, dict):  # names are in its `files` alone
        _refuse(text.flaw({key: each for key, each in value.items() if key != "files"}))


def _refuse(found: text.Flaw | None) -> None:
    if found is not None:
        raise UsageError(found.message, where=found.where or None, hint=_HINT)
