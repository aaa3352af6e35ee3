"""No request chooses how long the server works: each route of the tables gets numbers, lists and
nestings that are too much, and answers with a sentence, after little work."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from starlette import routing

from allranks.api.routes import ROUTES, Route
from allranks.server.agent_api import (
    channel_routes,
    input_routes,
    routes,
    start_routes,
    state_routes,
)
from allranks.server.api.endpoint import Endpoint
from allranks.server.arguments import Argument, Source
from tests.server.serving import Served, served

pytestmark = pytest.mark.slow

# Seconds of this process's time, in which the server runs, for one request.
MOST = 5.0
DIGEST = "0" * 64
NAMES = {
    "name": "j",
    "digest": DIGEST,
    "sha256": DIGEST,
    "number": "1",
    "index": "0",
    "attempt": "1",
}
NAMES |= {"rank": "0", "node": "0", "feed": "metrics", "reference": "m:1", "version": "d:1"}
# Ends the server, or its answer has no end.
LEFT_OUT = (
    "POST /server/stop",
    "GET /server/stop",
    "GET /jobs/{name}/wait",
    "GET /changes",
    "POST /jobs/{name}/metrics/follow",
)
MANY = 1_000_000
NUMBERS = {
    "list": b"[" + b"0," * MANY + b"0]",
    "arrays": b"[" * 60_000,
    "closed objects": b'{"a":' * 60_000 + b"1" + b"}" * 60_000,
    "number": b"%d" % 2**52,
    "negative": b"-%d" % 2**52,
}
# For routes that take lists.
LISTS = {
    "texts": b'["' + b'","'.join([b"a"] * MANY) + b'"]',
    "digests": json.dumps([DIGEST] * 900_000).encode(),
    "pairs": b"[" + b'["a",1],' * MANY + b'["a",1]]',
    "objects": b"[" + b"{}," * MANY + b"{}]",
    "pack": b"[" * 60_000 + b"\n",
    "pack of pairs": b"[" + b'["a",0],' * MANY + b'["a",0]]\n',
    "lines": b"{}\n" * MANY,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("much") / "h") as made:
        made.submit("j")
        yield made


def check(server: Served, method: str, path: str, body: bytes | None, token: str) -> None:
    began = time.process_time()
    shown = {**server.as_(token), "content-type": "application/json"}
    answer = server.people.request(method, path, content=body, headers=shown, timeout=300)
    used = time.process_time() - began
    what = f"{method} {path} {(body or b'')[:20]!r}: {answer.status_code} after {used:.1f} s"
    assert used < MOST, what
    assert answer.status_code < 500, f"{what} {answer.text[:300]}"
    if answer.status_code >= 400:
        assert answer.json()["hint"], what


def fill(path: str, **values: str) -> str:
    """A path with a value for each of its parameters."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: {**NAMES, **values}.get(match[1], "x"), path)


def is_number(hint: Any) -> bool:
    return hint in (int, float) or any(map(is_number, get_args(hint)))


def bodies(argument: Argument) -> Iterator[bytes]:
    """Bodies that are too much; of a model, also each of its keys."""
    yield from NUMBERS.values()
    if argument.several:
        yield from LISTS.values()
    if isinstance(argument.type, type) and issubclass(argument.type, BaseModel):
        quiet = {"follow": False} if "follow" in argument.type.model_fields else {}
        for name in argument.type.model_fields:
            for value in (2**52, -(2**52), [0] * 100_000):
                yield json.dumps({**quiet, name: value}).encode()


def arguments(row: Route) -> Iterator[Argument]:
    open_ones = [*Endpoint(row).signature().arguments]
    while open_ones:
        argument = open_ones.pop()
        open_ones += argument.given.arguments if argument.given else ()
        yield argument


@pytest.mark.parametrize("row", [row for row in ROUTES if row.address not in LEFT_OUT], ids=str)
def test_of_people(server: Served, row: Route) -> None:
    token, path = server.token(), fill(row.path)
    for argument in arguments(row):
        name = argument.name
        if argument.source is Source.QUERY and is_number(argument.type):
            for number in (2**52, -(2**52), 10**30):
                check(server, row.method, f"{path}?{name}={number}", None, token)
        elif argument.source is Source.PATH:
            for value in (str(2**52), str(-(2**52)), "[" * 5_000):
                check(server, row.method, fill(row.path, **{name: value}), None, token)
        elif argument.source is Source.QUERY:
            check(server, row.method, f"{path}?{name}={'[' * 5_000}", None, token)
        elif argument.source is Source.BODY:
            for body in bodies(argument):
                check(server, row.method, path, body, token)
    if row.address.startswith("PUT /blobs"):
        for body in (*NUMBERS.values(), *LISTS.values()):
            check(server, row.method, f"{path}?offset=0&size={2**52}", body, token)
        check(server, row.method, f"{path}?offset={2**52}&size={2**52 + 1}", b"x", token)


def agents() -> Iterator[tuple[str, str]]:
    more = (state_routes, start_routes, input_routes, channel_routes)
    of_all = [*routes.create_app().routes, *(route for each in more for route in each.routes())]
    for route in of_all:
        if isinstance(route, routing.Route) and not route.path.endswith(("/orders", "/start")):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield method, route.path


@pytest.mark.parametrize(("method", "path"), [*agents()], ids=str)
def test_of_agents(server: Served, method: str, path: str) -> None:
    token = server.auth.agent_token("j", 1)
    many = str(2**52)
    for name in re.findall(r"\{(\w+)", path):
        check(server, method, fill(path, **{name: many}), None, token)
    for query in (
        f"offset={many}&size={many}",
        "offset=-1&size=-1",
        f"now={many}",
        "offset=0&size=0",
    ):
        check(server, method, f"{fill(path)}?{query}", b"x", token)
    if method != "GET":
        for body in (*NUMBERS.values(), *LISTS.values()):
            check(server, method, f"{fill(path)}?offset=0&size={many}", body, token)
