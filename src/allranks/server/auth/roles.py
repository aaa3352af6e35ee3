"""Authorization: the roles. `api/routes.py` has the least role of each route.

A reader sees everything except secrets; a member also submits jobs, adds assets and ends their own
jobs; an admin may do everything.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeVar, cast

from starlette.requests import Request

from allranks.api.routes import Role
from allranks.errors import Forbidden
from allranks.masking import all_without_credentials
from allranks.server.arguments import Given

T = TypeVar("T")


class Person(NamedTuple):
    """The owner of a token, which is valid up to ``expires_at`` (seconds since the epoch)."""

    name: str
    role: Role
    expires_at: float | None = None


# Whoever can read the home has its token.
OWNER = Person("owner", Role.ADMIN)

# The key of the request scope under which the gate stores the caller.
PERSON = "allranks.person"


def person(request: Request) -> Person:
    caller: Person = request.scope[PERSON]
    return caller


Who = Annotated[Person, Given(person)]


def shown_to(who: Person, answer: T) -> T:
    """An answer without secret values for readers: members run what has them, which needs them."""
    return answer if who.role >= Role.MEMBER else cast("T", all_without_credentials(answer))


def require_role(who: Person, least: Role) -> None:
    """Raise Forbidden for a lower role."""
    if who.role < least:
        hint = "ask an admin of this server: allranks server token create NAME --role ROLE"
        raise Forbidden(f"this needs the role {least}; {who.name} is a {who.role}", hint=hint)


def require_own(who: Person, job: str, submitter: str) -> None:
    """Raise Forbidden unless the caller submitted the job or is an admin."""
    if who.role < Role.ADMIN and submitter != who.name:
        hint = f"ask {submitter}, or an admin of this server"
        raise Forbidden(f"{job} was submitted by {submitter}, not by {who.name}", hint=hint)
