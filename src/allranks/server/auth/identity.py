"""Authentication: people by the home's token or their own, agents and ranks by a token that is
valid for one launch of their job."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import NamedTuple

from allranks.errors import Unauthorized
from allranks.server.auth.roles import OWNER, Person
from allranks.server.auth.tokens import Tokens
from allranks.settings import Home


class Caller(NamedTuple):
    """The job and launch of an agent's or rank's token."""

    job: str
    launch: int


class Auth:
    """Checks tokens. The home's token is also the key that signs those of agents and ranks;
    ``tokens`` are those of other people."""

    def __init__(self, home: Home, tokens: Tokens | None = None) -> None:
        self._secret = _read_or_make(home)
        self._tokens = tokens

    @property
    def tokens(self) -> Tokens:
        assert self._tokens is not None
        return self._tokens

    def person(self, header: str | None) -> Person:
        """The person of an Authorization header. Raises Unauthorized."""
        token = bearer(header)
        if hmac.compare_digest(token.encode(errors="replace"), self._secret.encode()):
            return OWNER
        if self._tokens is not None and (person := self._tokens.find(token)) is not None:
            return person
        none = "no token was given, and this server asks for one"
        raise Unauthorized(
            "the token does not match this server's" if token else none,
            hint="log in again with your token, `allranks login URL`, or set ALLRANKS_TOKEN to it "
            "(create one: allranks server token create; they may expire), or to the one in the "
            "server's ALLRANKS_HOME/token",
        )

    def agent_token(self, job: str, launch: int) -> str:
        return f"{launch}:{job}:{self._sign('agent', job, launch)}"

    def agent(self, header: str | None) -> Caller:
        """The job and launch of an agent's token. Raises Unauthorized."""
        return self._caller("agent", header)

    def rank_token(self, job: str, launch: int) -> str:
        """The token of a job's ranks, which allows less than their agent's."""
        return f"{launch}:{job}:{self._sign('rank', job, launch)}"

    def rank(self, header: str | None) -> Caller:
        """The job and launch of a rank's token. Raises Unauthorized."""
        return self._caller("rank", header)

    def _caller(self, kind: str, header: str | None) -> Caller:
        launch, _, rest = bearer(header).partition(":")
        job, _, signed = rest.partition(":")
        number = int(launch) if launch.isdecimal() and len(launch) < 9 else 0
        ours = self._sign(kind, job, number)
        if not hmac.compare_digest(signed.encode(errors="replace"), ours.encode()):
            raise Unauthorized("the token was not issued by this server", hint="leave")
        return Caller(job, number)

    def _sign(self, kind: str, job: str, launch: int) -> str:
        text = f"{kind}\0{job}\0{launch}".encode(errors="replace")
        return hmac.new(self._secret.encode(), text, hashlib.sha256).hexdigest()


def bearer(header: str | None) -> str:
    """The token of an Authorization header; empty if it has none."""
    kind, _, token = (header or "").strip().partition(" ")
    return token.strip() if kind == "Bearer" else f"{kind} {token}".strip()


def _read_or_make(home: Home) -> str:
    if home.token.exists():
        token = home.token.read_text().strip()
        if token:
            return token
    token = secrets.token_urlsafe(32)
    with open(os.open(home.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token + "\n")
    return token
