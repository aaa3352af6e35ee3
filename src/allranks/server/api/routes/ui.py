"""/ui: forwards requests to the web page's server, which signs people in by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from allranks.errors import AllranksError, ServerError, TooLarge, Unsupported
from allranks.server.http.error_responses import reply
from allranks.server.http.forward import Call, EndedEarly, pass_on
from allranks.server.http.host_header_check import HostNames
from allranks.server.ui.child import UiServer, installed
from allranks.settings import Home

PREFIX = "/ui"
# The page's server keeps forms in memory.
_MOST = 1 << 20


def page(job: str) -> str | None:
    """The path of the page of a job, if there is one."""
    return f"{PREFIX}/jobs/{job}" if installed() else None


def is_guessed_page(scope: Any, headers: Headers) -> bool:
    """Whether a browser opens an address that lacks `/ui`."""
    path = scope["path"]
    if path == "/":
        return True
    opens = scope["method"] == "GET" and headers.get("accept", "").startswith("text/html")
    return opens and not path.startswith("/api/") and path != "/healthz"


class UiProxy:
    """The application for /ui, and for browsers at any address but the API's. ``url``: where the
    API answers on this machine."""

    def __init__(self, home: Home, url: str, host_names: HostNames) -> None:
        self._child = UiServer(home, url) if installed() else None
        self._host_names = host_names

    def stop(self) -> None:
        """Stop the page's server, if it runs."""
        if self._child is not None:
            self._child.stop()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = Headers(scope=scope)
        answer: Response
        try:
            self._host_names.check(headers)
            if self._child is None:
                hint = "on the server's machine: pip install 'allranks[ui]', then restart it"
                raise Unsupported("this server has no web page", hint=hint)
            if scope["path"] in ("/", PREFIX):
                answer = RedirectResponse(f"{PREFIX}/")
            elif not scope["path"].startswith(f"{PREFIX}/"):
                answer = RedirectResponse(PREFIX + scope["raw_path"].decode("latin-1"))
            else:
                await self._forward(self._child, scope, headers, receive, send)
                return
        except AllranksError as error:
            answer = _refusal(error, headers)
        except ConnectionError as error:
            message = f"the web page's server does not answer: {error}"
            answer = _refusal(ServerError(message, hint="see `ui/server.log` in its home"), headers)
        await answer(scope, receive, send)

    async def _forward(
        self, child: UiServer, scope: Any, headers: Headers, receive: Any, send: Any
    ) -> None:
        socket = await child.ready()
        target = scope["raw_path"].decode("latin-1")
        if query := scope["query_string"].decode("latin-1"):
            target += f"?{query}"
        size = int(headers.get("content-length", "0"))
        if size > _MOST or "transfer-encoding" in headers:
            raise TooLarge(f"a form is limited to {_MOST} bytes", hint="choose fewer jobs at once")
        own = (b"x-forwarded-host", b"x-forwarded-proto")
        sent = [each for each in headers.raw if each[0] not in own]
        sent.append((own[0], headers.get("host", "").encode("latin-1")))
        sent.append((own[1], scope.get("scheme", "http").encode()))
        call = Call(scope["method"], target, sent, size, private=True)
        try:
            await pass_on(socket, call, receive, send)
        except ConnectionError as error:
            await asyncio.to_thread(child.lost)
            if isinstance(error, EndedEarly):
                raise RuntimeError("the page's server ended early") from None
            raise


def _refusal(error: AllranksError, headers: Headers) -> Response:
    """An error for people, or for programs."""
    if "text/html" in headers.get("accept", ""):
        return PlainTextResponse(f"{error}\nhint: {error.hint or '-'}\n", error.http)
    return reply(error)
