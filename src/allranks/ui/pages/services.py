"""Open a service of a job in the browser, at a host name of its own."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allranks.errors import Conflict, Forbidden
from allranks.ui.api import Session
from allranks.ui.security import is_own_step
from allranks.ui.service_links import Place, ServiceLinks

_HERE = ("localhost", "127.0.0.1", "[::1]")


async def open_service(request: Request) -> Response:
    """Lead to it. Raises Forbidden for a link of another site's page, and Conflict where the page
    is not reached at a name of this machine: others have no name for each service."""
    if not is_own_step(request.headers):
        raise Forbidden("another site's page may not open a service", hint="open it from its job")
    session: Session = request.state.session
    links: ServiceLinks = request.app.state.service_links
    job, name = request.path_params["name"], request.query_params.get("name", "")
    node = request.query_params.get("node", "0")
    host, _, port = request.headers.get("x-forwarded-host", "").rpartition(":")
    if host not in _HERE or request.headers.get("x-forwarded-proto") != "http":
        hint = f"on your machine: allranks job port-forward {job} {name}"
        raise Conflict("a service opens here only where the page is at localhost", hint=hint)
    place = Place(session.token, job, name, int(node) if node.isdecimal() else 0)
    label, code = await run_in_threadpool(links.open, place, session.client)
    address = f"http://{label}.localhost:{port}/.allranks/enter?code={code}"
    return RedirectResponse(address, 303)
