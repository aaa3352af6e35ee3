"""Who may speak: people by the home's token or one of their own, agents and ranks by one each that
is good for their job's launch only."""

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
    """An agent's or a rank's job and launch, as its token says."""

    job: str
    launch: int


class Auth:
    """The home's one secret, its owner's token, which signs those of agents; and ``tokens``, those
    of other people."""

    def __init__(self, home: Home, tokens: Tokens | None = None) -> None:
        self._secret = _read_or_make(home)
        self._tokens = tokens

    @property
    def tokens(self) -> Tokens:
        assert self._tokens is not None
        return self._tokens

    def person(self, header: str | None) -> Person:
        """Who it is; raises Unauthorized."""
        shown = _bearer(header)
        if hmac.compare_digest(shown.encode(errors="replace"), self._secret.encode()):
            return OWNER
        if self._tokens is not None and (found := self._tokens.find(shown)) is not None:
            return found
        raise Unauthorized(
            "the token does not match this server's",
            hint="set ALLRANKS_TOKEN to yours (`allranks server token create` makes one, and they "
            "expire), or to that in the server's ALLRANKS_HOME/token",
        )

    def agent_token(self, job: str, launch: int) -> str:
        return f"{launch}:{job}:{self._sign('agent', job, launch)}"

    def agent(self, header: str | None) -> Caller:
        """Who the agent is; raises Unauthorized."""
        return self._speaker("agent", header)

    def rank_token(self, job: str, launch: int) -> str:
        """What a job's own processes show: it opens less than their agent's."""
        return f"{launch}:{job}:{self._sign('rank', job, launch)}"

    def rank(self, header: str | None) -> Caller:
        """Whose rank it is; raises Unauthorized."""
        return self._speaker("rank", header)

    def _speaker(self, who: str, header: str | None) -> Caller:
        launch, _, rest = _bearer(header).partition(":")
        job, _, signed = rest.partition(":")
        number = int(launch) if launch.isdecimal() and len(launch) < 9 else 0
        ours = self._sign(who, job, number)
        if not hmac.compare_digest(signed.encode(errors="replace"), ours.encode()):
            raise Unauthorized("this token was not made by this server", hint="leave")
        return Caller(job, number)

    def _sign(self, who: str, job: str, launch: int) -> str:
        text = f"{who}\0{job}\0{launch}".encode(errors="replace")
        return hmac.new(self._secret.encode(), text, hashlib.sha256).hexdigest()


def _bearer(header: str | None) -> str:
    return (header or "").removeprefix("Bearer ").strip()


def _read_or_make(home: Home) -> str:
    if home.token.exists():
        found = home.token.read_text().strip()
        if found:
            return found
    made = secrets.token_urlsafe(32)
    with open(os.open(home.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(made + "\n")
    return made
