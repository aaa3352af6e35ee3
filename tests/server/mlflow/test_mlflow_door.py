"""Who is let through to MLflow at which door, decided before its server is spoken to."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from allranks.server.api.routes.mlflow import Proxy
from allranks.server.auth.identity import Auth
from allranks.server.auth.roles import Person, Role
from allranks.server.http.host_header_check import HostNames
from allranks.settings import Home

# No MLflow: whoever is let through is told so.
PASSED = 501


def asked(auth: Auth, token: str, *, people: bool, **headers: str) -> httpx.Response:
    nothing = dict.fromkeys(("records", "points", "annotations", "wakeups", "tracking", "models"))
    of: Any = SimpleNamespace(auth=auth, host_names=HostNames(), **nothing)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Proxy(of, people=people))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7") as client:
            shown = {"authorization": f"Bearer {token}", **headers}
            return await client.get("/mlflow/api/2.0/mlflow/runs/get", headers=shown)

    return asyncio.run(ask())


@pytest.fixture
def auth(tmp_path: Path) -> Auth:
    return Auth(Home(tmp_path))


def test_people_and_ranks_come_in_here_and_ranks_alone_at_the_agents_door(
    auth: Auth, tmp_path: Path
) -> None:
    person, rank = (tmp_path / "token").read_text().strip(), auth.rank_token("j", 1)
    assert asked(auth, person, people=True).status_code == PASSED
    assert asked(auth, rank, people=True).status_code == PASSED
    assert asked(auth, rank, people=False).status_code == PASSED
    assert asked(auth, person, people=False).status_code == 401


@pytest.mark.parametrize("people", [True, False])
def test_an_agents_token_is_none_of_its_ranks(auth: Auth, people: bool) -> None:
    answer = asked(auth, auth.agent_token("j", 1), people=people)
    assert answer.status_code == 401
    assert json.loads(answer.content)["error_code"] == "UNAUTHENTICATED"
    assert "the token does not match" in json.loads(answer.content)["message"]
    nothing = asked(auth, "", people=people)
    assert (nothing.status_code, b"no token was given: set" in nothing.content) == (401, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "[::1"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"origin": "http://127.0.0.1:8"},
    ],
)
def test_strangers_names_and_pages_are_refused(auth: Auth, headers: dict[str, str]) -> None:
    token = auth.rank_token("j", 1)
    assert asked(auth, token, people=True, **headers).status_code == 403


# MLflow's server is not there: whoever is let through to it is answered with this.
REACHED = 503


@pytest.mark.parametrize("path", ["experiments/create", "%65xperiments/create"])
@pytest.mark.parametrize("key", ["artifact_location", "artifactLocation"])
def test_members_do_not_choose_where_mlflows_server_has_files(path: str, key: str) -> None:
    """It has the rights of this server's user, and its keys of clouds."""

    async def ready() -> str:
        return "/nowhere"

    child = SimpleNamespace(ready=ready, lost=lambda: None)
    tracking = SimpleNamespace(child=child, mirror=SimpleNamespace(passed=True))

    def status(role: Role, content: bytes) -> int:
        auth = SimpleNamespace(person=lambda _: Person("ann", role))
        names = ("records", "points", "annotations", "wakeups", "models")
        of: Any = SimpleNamespace(
            auth=auth, host_names=HostNames(), tracking=tracking, **dict.fromkeys(names)
        )

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(Proxy(of))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:7"
            ) as client:
                return await client.post(f"/mlflow/api/2.0/mlflow/{path}", content=content)

        return asyncio.run(ask()).status_code

    for place in ("/etc", "..", "s3://b/k"):
        content = json.dumps({"name": "e", key: place}).encode()
        assert status(Role.MEMBER, content) == 403
        assert status(Role.ADMIN, content) == REACHED
    assert status(Role.MEMBER, b'{"name": "e"}') == REACHED
    for content in (b"[" * 60_000, b'"{}"'):
        assert status(Role.MEMBER, content) == 400
