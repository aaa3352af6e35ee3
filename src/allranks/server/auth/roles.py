"""Who may do what: the least role of each of people's routes, in one table that a test holds whole.

A reader sees everything but what is secret to all; a member also submits jobs, adds what jobs need,
and ends what they submitted; an admin does everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, NamedTuple

from fastapi import Depends, Request

from allranks.errors import Forbidden


class Role(IntEnum):
    """Each may what those before it may."""

    READER = 1
    MEMBER = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()


class Person(NamedTuple):
    """Whose token it is."""

    name: str
    role: Role


# The home's own token, which whoever can read the home has.
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
    "GET /api/v1/resolve": _R,
    "GET /api/v1/compare": _R,
    "GET /api/v1/jobs/{name}": _R,
    "PATCH /api/v1/jobs/{name}": _M,  # of their own: see `hold_to_own`
    "DELETE /api/v1/jobs/{name}": _M,  # as above
    "GET /api/v1/jobs/{name}/explanation": _R,
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
    "POST /api/v1/states/{state}/restore": _M,  # that their own job had last
    "DELETE /api/v1/states/{state}": _M,  # of their own jobs; with a name: admins
}

# Where the gate leaves who it let in.
PERSON = "allranks.person"


def person(request: Request) -> Person:
    """Who asks."""
    found: Person = request.scope[PERSON]
    return found


Who = Annotated[Person, Depends(person)]


def allowed(request: Request, who: Who) -> None:
    """Raises Forbidden where the route takes more than the role of who asks. A route that is in no
    table is the admins'."""
    hold_to(who, ROLES.get(f"{request.method} {request.scope['route'].path}", Role.ADMIN))


def hold_to(who: Person, least: Role) -> None:
    """Raises Forbidden where they have a lesser role."""
    if who.role < least:
        raise Forbidden(
            f"that takes the role {least}, and {who.name} has {who.role}",
            hint="ask whoever runs this server: allranks server token create NAME --role ROLE",
        )


def hold_to_own(who: Person, job: str, submitter: str) -> None:
    """Raises Forbidden unless they may end and repeat the job, with all that is in it."""
    if who.role < Role.ADMIN and submitter != who.name:
        hint = "ask them, or an admin of this server"
        raise Forbidden(f"{job} was submitted by {submitter}, not by {who.name}", hint=hint)
