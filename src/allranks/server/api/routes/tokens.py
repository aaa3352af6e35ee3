"""Routes for people's tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from allranks.api.routes import Role
from allranks.api.server import CallerAnswer, CreatedToken, TokenAnswer
from allranks.server.auth.roles import Who
from allranks.server.auth.tokens import Token
from allranks.server.dependencies import ServicesDep
from allranks.server.timestamps import iso_time


class TokenRequest(BaseModel):
    """Without ``expires_days`` the token is valid until revoked."""

    name: str
    role: Literal["reader", "member", "admin"]
    expires_days: Annotated[float, Field(gt=0, le=36500)] | None = None


def list_tokens(services: ServicesDep) -> list[TokenAnswer]:
    """The owners and roles of all tokens, without the tokens themselves."""
    return [_shown(each) for each in services.auth.tokens.list()]


def mine(who: Who) -> CallerAnswer:
    """Whose token the request has, and until when it is valid."""
    return {"name": who.name, "role": str(who.role), "expires_at": iso_time(who.expires_at)}


def create(body: TokenRequest, services: ServicesDep) -> CreatedToken:
    """Create a token. Only this response contains its `token`."""
    role = Role[body.role.upper()]
    made = services.auth.tokens.create(body.name, role, body.expires_days)
    (token,) = (each for each in services.auth.tokens.list() if each.person.name == body.name)
    return {**_shown(token), "token": made}


def revoke(name: str, services: ServicesDep) -> None:
    """Revoke a token; its owner's jobs continue, but not the channels into running jobs."""
    services.auth.tokens.revoke(name)
    services.channels.end_of(name)


def _shown(token: Token) -> TokenAnswer:
    return {
        "name": token.person.name,
        "role": str(token.person.role),
        "created_at": iso_time(token.created_at),
        "expires_at": iso_time(token.expires_at),
        "last_used_at": iso_time(token.used_at),
    }
