"""Any text and any number, in every place of every route: after each round, what a second user
sees is whole.

ALLRANKS_TEST_FUZZ=N takes N times as many examples.
"""

import copy
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.api.routes import ROUTES, Route
from tests.server.http.test_fuzz import (
    AS_JSON,
    BODIES,
    EVENTS,
    POINTS,
    STACKS,
    USED,
    examples,
    places,
)
from tests.server.serving import Served, held_to, served

# Left out: it ends the jobs; it stands open (tests/server/http/test_public_listener.py); they wait.
_LEFT_OUT = ("/server/stop", "/server/front", "/follow", "/wait")

BIDI = "\u202e\u2066\u2069\u200f\u061c"
ODD = [
    "\0",
    "\ud800",
    "\udfff",
    "\udcff",
    "x\ud83d",
    "\ufffe",
    "\U0010ffff",
    "\x1b]0;x\x07",
    "\x85",
]
ODD += [BIDI, "e\u0301" * 500, "😀", "\u2028", "\ufeff", "\r", "a\nb", "../\0", "x" * 300_000]
# Every plane, with surrogates and what is not assigned.
ANY = st.text(st.characters(codec=None, exclude_categories=()), min_size=1, max_size=40)
TEXTS = st.sampled_from(ODD) | ANY
NUMBERS = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324, 2**63, 10**4000])
DEEP = st.sampled_from([40, 70, 500]).map(lambda deep: json.loads("[" * deep + "]" * deep))
VALUES = TEXTS | TEXTS | NUMBERS | DEEP | st.dictionaries(TEXTS, TEXTS, max_size=2)
MORE: list[tuple[str, str, Any]] = [
    ("POST", "tokens", {"name": "t", "role": "reader", "expires_days": 1}),
    ("POST", "jobs/j/preempt", {"by": "x"}),
    ("POST", "jobs/j/kill?rank=0", {"by": "x"}),
    ("PUT", "data/d:1/labels", {"labels": ["x"]}),
    ("PUT", "models/m:1/labels", {"labels": ["x"]}),
    ("PUT", "environments/e:1/labels", {"labels": ["x"]}),
    ("POST", "states/s/restore", {"version": 1}),
]
_count = itertools.count()

# What lists are of, and what is to be seen of one job.
SEEN = ["server", "jobs", "top", "computes", "environments", "environments/map", "data", "data/map"]
SEEN += ["models", "datastores", "states", "states?own=true", "jobs/j", "jobs/j/events"]
SEEN += ["jobs/j/metrics", "jobs/j/metrics/summary", "jobs/j/resources", "jobs/j/files"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("texts") / "h") as found:
        found.submit("j")
        yield found


@pytest.fixture(scope="module")
def second(server: Served) -> dict[str, str]:
    made = server.people.post("/api/v1/tokens", json={"name": "second", "role": "reader"})
    return server.as_(made.json()["token"])


def seen(server: Served, second: dict[str, str]) -> None:
    """All of it answers, in strict JSON that any terminal and database could hold."""
    for path in SEEN:
        told = server.people.get(f"/api/v1/{path}", headers=second)
        assert told.status_code == 200, (path, told.text)
        json.loads(told.content.decode(), parse_constant=_refuse)
    for row in server.people.get("/api/v1/jobs?limit=1000", headers=second).json():
        assert "damaged" not in row, row


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def with_value(draw: st.DrawFn, right: Any, value: Any) -> bytes:
    """The body with that in one place of it, as a value or as a key."""
    body = copy.deepcopy(right)
    *way, last = draw(st.sampled_from([*places(body)][1:]))
    at = body
    for step in way:
        at = at[step]
    if isinstance(at, dict) and isinstance(value, str) and draw(st.booleans()):
        at[value] = at.pop(last)
    else:
        at[last] = value
    if isinstance(body, dict) and isinstance(spec := body.get("spec"), dict) and last != "name":
        spec["name"] = f"n{next(_count)}"  # else it is taken, and all else is not looked at
    return json.dumps(body).encode()


def asked(server: Served, data: st.DataObject, values: st.SearchStrategy[Any]) -> None:
    method, path, right = data.draw(st.sampled_from([*BODIES, *MORE]))
    body = with_value(data.draw, right, data.draw(values))
    if path.endswith("stream") and b'"follow": false' not in body:
        return
    held_to(server.people.request(method, f"/api/v1/{path}", content=body, headers=AS_JSON))


@examples(60)
@given(data=st.data())
def test_bodies(server: Served, data: st.DataObject) -> None:
    asked(server, data, VALUES)


def test_and_a_second_user_sees_all(server: Served, second: dict[str, str]) -> None:
    seen(server, second)


@pytest.mark.parametrize(
    "row",
    [each for each in ROUTES if not each.path.endswith(_LEFT_OUT)],
    ids=lambda row: row.address,
)
@pytest.mark.medium
def test_addresses(server: Served, second: dict[str, str], row: Route) -> None:
    @examples(3)
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        def text(_: object) -> str:
            return quote(data.draw(TEXTS)[:200], errors="surrogatepass")

        address = re.sub(r"\{[^}]*\}", text, row.path)
        query = f"?status={text(0)}&name={text(0)}&limit={text(0)}&{text(0)}={text(0)}"
        held_to(server.people.request(row.method, address + query, content=b"[]", headers=AS_JSON))

    ask()
    seen(server, second)


AGENTS = [("POST", "events", each) for each in ([event] for event in EVENTS)]
AGENTS += [("PUT", "stacks/1", STACKS), ("PUT", "still/1", {"0": [1.0, 2.0, 3.0, None]})]
AGENTS += [
    ("PUT", "points/1/metrics?offset=0", POINTS),
    ("PUT", "points/1/resources?offset=0", USED),
]
PUT = {"path": "a", "what": "file", "mode": 420, "size": 1, "sha256": "0" * 64}
AGENTS += [("POST", "state/sync", {"attempt": 1, "after": 0, "puts": [PUT], "same": True})]


@examples(60)
@given(st.data())
def test_agents(server: Served, data: st.DataObject) -> None:
    method, path, right = data.draw(st.sampled_from(AGENTS))
    shown = server.as_(server.auth.agent_token("j", 1))
    body = with_value(data.draw, right, data.draw(VALUES))
    held_to(server.people.request(method, f"/agent/v1/0/{path}", content=body, headers=shown))


def test_and_a_second_user_sees_what_agents_told(server: Served, second: dict[str, str]) -> None:
    seen(server, second)


HUGE = ("x" * (10 << 20), "\U0001f600" * (3 << 20))


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(5))
def test_at_length(server: Served, second: dict[str, str], round_: int) -> None:
    @examples(100)
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        asked(server, data, VALUES)

    ask()
    seen(server, second)


@pytest.mark.slow
@pytest.mark.parametrize("text", HUGE, ids=["ASCII", "others"])
def test_texts_of_megabytes(server: Served, second: dict[str, str], text: str) -> None:
    for method, path, right in [*BODIES, *MORE]:
        body = copy.deepcopy(right)
        *way, last = [*places(body)][-1]
        at = body
        for step in way:
            at = at[step]
        at[last] = text
        content = json.dumps(body).encode()
        told = server.people.request(method, f"/api/v1/{path}", content=content, headers=AS_JSON)
        held_to(told)
        assert told.status_code == 400, path
        assert len(told.content) < 1000
    seen(server, second)
