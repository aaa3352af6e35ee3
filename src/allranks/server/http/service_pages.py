"""Pages of jobs' services, each at a host name of its own: LABEL.localhost.

The web page's process leads a Unix socket to the service and writes, in a folder of that label, the
secret of its cookie and the codes that set it once (`ui.service_links`). What a service says is a
job's: its own host keeps it from the page's cookies, storage and origin. Browsers take such names
for this machine, without asking anybody.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from allranks.http_limits.header_limits import CONNECTION
from allranks.server.http.forward import Call, EndedEarly, pass_on
from allranks.server.http.upgrade import Pipe
from allranks.unix_sockets import short_path

COOKIE = "allranks_service"
ENTER = "/.allranks/enter"
_HOST = re.compile(r"(service-[0-9a-f]{32})\.localhost(:[0-9]+)?")
_AGAIN = "This page has ended, or its link was used already: open it from the page of its job.\n"


def label_of(headers: Headers) -> str | None:
    """The label that the request is for."""
    match = _HOST.fullmatch(headers.get("host", "").lower())
    return match[1] if match else None


class ServicePages:
    """The application of those hosts. ``folder`` has a folder for each label."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = Headers(scope=scope)
        folder = self._folder / str(label_of(headers))
        if scope["path"] == ENTER:
            await _enter(folder, scope)(scope, receive, send)
            return
        secret = _read(folder / "secret")
        cookie, others = _cookies(headers)
        if not secret or not hmac.compare_digest(cookie.encode(), secret.encode()):
            await PlainTextResponse(_AGAIN, 403)(scope, receive, send)
            return
        sent = [header for header in headers.raw if header[0] != b"cookie"]
        sent += [(b"cookie", others.encode("latin-1"))] if others else []
        with short_path(folder / "socket") as path:
            try:
                if "upgrade" in headers:
                    await _upgrade(path, scope, sent)
                else:
                    await _forward(path, scope, headers, sent, receive, send)
            except (ConnectionError, OSError):
                await PlainTextResponse("The service does not answer.\n", 502)(scope, receive, send)


def _enter(folder: Path, scope: Any) -> Response:
    """Set the cookie for a code, which is used up."""
    (code,) = parse_qs(scope["query_string"].decode("latin-1")).get("code", [""])[:1]
    try:
        os.unlink(folder / hashlib.sha256(code.encode()).hexdigest())
    except OSError:
        return PlainTextResponse(_AGAIN, 403)
    answer = RedirectResponse("/", 303, {"referrer-policy": "no-referrer"})
    answer.set_cookie(COOKIE, _read(folder / "secret"), httponly=True, samesite="lax")
    return answer


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _cookies(headers: Headers) -> tuple[str, str]:
    """Our cookie, and all others."""
    own, others = "", []
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            own = value
        elif name:
            others.append(pair.strip())
    return own, "; ".join(others)


def _target(scope: Any) -> str:
    query = scope["query_string"].decode("latin-1")
    path = str(scope["raw_path"].decode("latin-1"))
    return f"{path}?{query}" if query else path


async def _forward(
    path: str, scope: Any, headers: Headers, sent: Any, receive: Any, send: Any
) -> None:
    is_chunked = "transfer-encoding" in headers
    size = None if is_chunked else int(headers.get("content-length", "0"))
    call = Call(scope["method"], _target(scope), sent, size, private=True, is_own_host=True)
    try:
        await pass_on(path, call, receive, send)
    except EndedEarly:
        raise RuntimeError("the service ended its answer early") from None


async def _upgrade(path: str, scope: Any, sent: Any) -> None:
    """Lead a WebSocket, from its request on: its answer is the service's."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, path)
    lines = [f"{scope['method']} {_target(scope)} HTTP/1.1".encode("latin-1")]
    lines += [b"%s: %s" % header for header in sent]
    transport.write(b"\r\n".join([*lines, b"", b""]))
    Pipe(scope[CONNECTION].take_over()).join(Pipe(transport))
