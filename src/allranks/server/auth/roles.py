"""Authorization: the minimum role of each of people's routes. A test checks that none is missing.

A reader sees everything except secrets; a member also submits jobs, adds assets and ends their own
jobs; an admin may do everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, NamedTuple

from fastapi import Depends, Request

from allranks.errors import Forbidden


class Role(IntEnum):
    """Each role includes those before it."""

    READER = 1
    MEMBER = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()


class Person(NamedTuple):
    """The owner of a token."""

    name: str
    role: Role


# Whoever can read the home has its token.
OWNER = Person("owner", Role.ADMIN)

_R, _M, _A = Role.READER, Role.MEMBER, Role.ADMIN

ROLES: Mapping[str, Role] = {
    "GET /api/v1/server": _R,
    "POST /api/v1/server/stop": _A,
    "PUT /api/v1/server/front": _A,
    "GET /api/v1/tokens": _A,
    "POST /api/v1/tokens": _A,
    "DELETE /api/v1/tokens/{name}": _A,
    "POST /api/v1/gc": _A,
    "GET /api/v1/jobs": _R,
    "POST /api/v1/jobs": _M,
    "POST /api/v1/jobs/list": _M,
    "GET /api/v1/changes": _R,
    "GET /api/v1/resolve": _R,
    "GET /api/v1/compare": _R,
    "GET /api/v1/jobs/{name}": _R,
    "PATCH /api/v1/jobs/{name}": _M,  # own jobs only: see `require_own`
    "DELETE /api/v1/jobs/{name}": _M,  # as above
    "GET /api/v1/jobs/{name}/explanation": _R,
    "GET /api/v1/jobs/{name}/plan": _R,
    "GET /api/v1/jobs/{name}/events": _R,
    "GET /api/v1/jobs/{name}/wait": _R,
    "POST /api/v1/jobs/{name}/stream": _R,
    "POST /api/v1/jobs/{name}/cancel": _M,  # as above
    "POST /api/v1/jobs/{name}/restart": _M,  # as above
    "POST /api/v1/jobs/{name}/preempt": _M,  # as above
    "POST /api/v1/jobs/{name}/kill": _M,  # as above
    "POST /api/v1/jobs/{name}/stacks": _R,
    "GET /api/v1/jobs/{name}/metrics": _R,
    "GET /api/v1/jobs/{name}/metrics/summary": _R,
    "POST /api/v1/jobs/{name}/metrics/follow": _R,
    "GET /api/v1/jobs/{name}/resources": _R,
    "GET /api/v1/jobs/{name}/files": _R,
    "GET /api/v1/jobs/{name}/links": _R,
    "GET /api/v1/jobs/{name}/code": _R,
    "GET /api/v1/jobs/{name}/code/{_:rest}": _R,
    "GET /api/v1/jobs/{name}/files/{_:rest}": _R,
    "POST /api/v1/jobs/{name}/bundle": _R,
    "GET /api/v1/jobs/{name}/checksums/{_:rest}": _R,
    "GET /api/v1/top": _R,
    "POST /api/v1/blobs/missing": _M,
    "POST /api/v1/blobs/discard": _M,
    "PUT /api/v1/blobs/{digest}": _M,
    "GET /api/v1/computes": _R,
    "GET /api/v1/computes/{name}": _R,
    "POST /api/v1/computes": _A,
    "PATCH /api/v1/computes/{name}": _A,
    "DELETE /api/v1/computes/{name}": _A,
    "PUT /api/v1/computes/default": _A,
    "PUT /api/v1/computes/map": _A,
    "GET /api/v1/instances/map": _R,
    "PUT /api/v1/instances/map": _A,
    "GET /api/v1/datastores": _R,
    "GET /api/v1/datastores/{name}": _R,
    "POST /api/v1/datastores": _A,
    "DELETE /api/v1/datastores/{name}": _A,
    "GET /api/v1/data": _R,
    "GET /api/v1/data/{reference}": _R,
    "GET /api/v1/data/map": _R,
    "PUT /api/v1/data/map": _A,
    "POST /api/v1/data": _M,
    "PUT /api/v1/data/{reference}/labels": _M,
    "DELETE /api/v1/data/{reference}": _A,
    "GET /api/v1/components": _R,
    "GET /api/v1/components/{reference}": _R,
    "POST /api/v1/components": _M,
    "PUT /api/v1/components/{reference}/labels": _M,
    "DELETE /api/v1/components/{reference}": _A,
    "GET /api/v1/schedules": _R,
    "GET /api/v1/schedules/{name}": _R,
    "POST /api/v1/schedules": _M,
    "POST /api/v1/schedules/{name}/pause": _M,
    "POST /api/v1/schedules/{name}/resume": _M,
    "DELETE /api/v1/schedules/{name}": _M,
    "GET /api/v1/environments": _R,
    "GET /api/v1/environments/{reference}": _R,
    "GET /api/v1/environments/map": _R,
    "PUT /api/v1/environments/map": _A,
    "POST /api/v1/environments": _M,
    "POST /api/v1/environments/recipe": _R,
    "POST /api/v1/environments/{reference}/clone": _M,
    "PUT /api/v1/environments/{reference}/labels": _M,
    "DELETE /api/v1/environments/{reference}": _A,
    "GET /api/v1/models": _R,
    "GET /api/v1/models/{reference}": _R,
    "GET /api/v1/models/{reference}/manifest": _R,
    "GET /api/v1/models/{reference}/files/{_:rest}": _R,
    "POST /api/v1/models/{reference}/bundle": _R,
    "GET /api/v1/models/{reference}/checksums/{_:rest}": _R,
    "POST /api/v1/models": _M,
    "PUT /api/v1/models/{reference}/labels": _M,
    "DELETE /api/v1/models/{reference}": _A,
    "GET /api/v1/states": _R,
    "GET /api/v1/states/{state}": _R,
    "GET /api/v1/states/{state}/manifest": _R,
    "GET /api/v1/states/{state}/files/{_:rest}": _R,
    "POST /api/v1/states/{state}/bundle": _R,
    "GET /api/v1/states/{state}/checksums/{_:rest}": _R,
    "POST /api/v1/states/{state}/restore": _M,  # if their own job had it last
    "DELETE /api/v1/states/{state}": _M,  # of their own jobs; named states: admins
}

# The key of the request scope under which the gate stores the caller.
PERSON = "allranks.person"


def person(request: Request) -> Person:
    caller: Person = request.scope[PERSON]
    return caller


Who = Annotated[Person, Depends(person)]


def allowed(request: Request, who: Who) -> None:
    """Raise Forbidden if the caller's role is too low. Routes missing from the table need admin."""
    require_role(who, ROLES.get(f"{request.method} {request.scope['route'].path}", Role.ADMIN))


def require_role(who: Person, least: Role) -> None:
    """Raise Forbidden for a lower role."""
    if who.role < least:
        raise Forbidden(
            f"this needs the role {least}; {who.name} is a {who.role}",
            hint="ask an admin of this server: allranks server token create NAME --role ROLE",
        )


def require_own(who: Person, job: str, submitter: str) -> None:
    """Raise Forbidden unless the caller submitted the job or is an admin."""
    if who.role < Role.ADMIN and submitter != who.name:
        hint = f"ask {submitter}, or an admin of this server"
        raise Forbidden(f"{job} was submitted by {submitter}, not by {who.name}", hint=hint)
