"""Routes for the tokens of people."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from allranks.server.auth.roles import Role
from allranks.server.auth.tokens import Token
from allranks.server.dependencies import Services, services
from allranks.server.timestamps import when

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1/tokens")


class Wanted(BaseModel):
    """``expires_days`` none: it is good until it is revoked."""

    name: str
    role: Literal["reader", "member", "admin"]
    expires_days: Annotated[float, Field(gt=0, le=36500)] | None = None


@router.get("")
def list_tokens(with_: With) -> list[dict[str, Any]]:
    """Whose there are, and what they may; not what they are, which nobody knows."""
    return [_shown(each) for each in with_.auth.tokens.list()]


@router.post("", status_code=201)
def create(wanted: Wanted, with_: With) -> dict[str, Any]:
    """A new one, with its `token`: this answer is the only one that tells it."""
    role = Role[wanted.role.upper()]
    made = with_.auth.tokens.create(wanted.name, role, wanted.expires_days)
    (found,) = (each for each in with_.auth.tokens.list() if each.person.name == wanted.name)
    return {**_shown(found), "token": made}


@router.delete("/{name}", status_code=204)
def revoke(name: str, with_: With) -> None:
    """It opens nothing from now on; jobs of theirs go on."""
    with_.auth.tokens.revoke(name)


def _shown(token: Token) -> dict[str, Any]:
    return {
        "name": token.person.name,
        "role": str(token.person.role),
        "created_at": when(token.created_at),
        "expires_at": when(token.expires_at),
        "last_used_at": when(token.used_at),
    }
