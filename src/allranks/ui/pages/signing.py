"""Signing in and out."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from allranks.errors import AllranksError, Forbidden, Unauthorized
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.security import is_own_step
from allranks.ui.sign_in import COOKIE, LINK

_HOME = "/ui/"


def cookie_name(request: Request) -> str:
    """Servers on one machine differ by their ports, which browsers ignore for cookies."""
    host = request.headers.get("x-forwarded-host", "")
    port = host.rpartition(":")[2] if ":" in host else ""
    return f"allranks_{port}" if port.isdigit() else "allranks"


async def link(request: Request) -> Response:
    """A one-time address for the owner of the token in the Authorization header."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    try:
        await Session(request.app.state.api, token).person()
    except AllranksError as error:
        return JSONResponse(error.body(), error.http)
    code = request.app.state.doorkeeper.link(token)
    return JSONResponse({"path": f"/ui/sign-in?code={code}", "seconds": LINK})


async def sign_in(request: Request) -> Response:
    """Sign in by a one-time code, or by the form with a token.

    A link on another site's page does not replace who is signed in: the page asks first. Else that
    site could make people work as somebody else.
    """
    doorkeeper = request.app.state.doorkeeper
    code = request.query_params.get("code")
    if request.method == "GET" and code is None:
        return render.page(request, "sign_in.html", message="", back=_back(request))
    if request.method == "GET":
        if (other := await _replaced(request, str(code))) is not None:
            return other
        token = doorkeeper.redeem(str(code))
    else:
        form = await request.form()
        posted = form.get("code")
        code = posted if isinstance(posted, str) else None
        signed = doorkeeper.open(request.cookies.get(cookie_name(request), ""))
        if code is not None and signed is not None:
            await check_form(request, signed.forms)
        token = str(form.get("token", "")).strip() if code is None else doorkeeper.redeem(str(code))
    try:
        if not token:
            used = "This link was used already, or is too old. Get a new one: allranks ui"
            raise Unauthorized("enter a token" if code is None else used)
        await Session(request.app.state.api, token).person()
    except AllranksError as error:
        message = str(error)
        return render.page(
            request, "sign_in.html", status=error.http, message=message, back=_back(request)
        )
    answer = RedirectResponse(_back(request), 303)
    answer.set_cookie(
        cookie_name(request),
        request.app.state.doorkeeper.cookie(token),
        max_age=int(COOKIE),
        path="/ui",
        httponly=True,
        samesite="lax",
        secure=request.headers.get("x-forwarded-proto") == "https",
    )
    return answer


async def _replaced(request: Request, code: str) -> Response | None:
    """The page that asks whether to replace who is signed in; None if there is nothing to ask."""
    state = request.app.state
    signed = state.doorkeeper.open(request.cookies.get(cookie_name(request), ""))
    token = state.doorkeeper.token_of(code)
    if signed is None or token is None or is_own_step(request.headers):
        return None
    if token == signed.token and "sec-fetch-site" not in request.headers:
        return None
    try:
        now = await Session(state.api, signed.token).person()
        then = await Session(state.api, token).person()
    except Unauthorized:
        return None
    request.state.forms = signed.forms
    return render.page(
        request, "replace_sign_in.html", now=now, then=then, code=code, back=_back(request)
    )


async def sign_out(request: Request) -> Response:
    answer = RedirectResponse("/ui/sign-in", 303)
    answer.delete_cookie(cookie_name(request), path="/ui")
    return answer


async def check_form(request: Request, expected: str) -> None:
    """Raise Forbidden unless the form carries the secret of this person's pages."""
    form = await request.form()
    if not hmac.compare_digest(str(form.get("forms", "")).encode(), expected.encode()):
        raise Forbidden("the form is out of date", hint="reload the page and try again")


def _back(request: Request) -> str:
    """The page to return to, which is always one of ours."""
    address = request.query_params.get("back", _HOME)
    parts = urlsplit(address)
    ours = not parts.scheme and not parts.netloc and address.startswith(_HOME)
    return address if ours and "\\" not in address else _HOME
