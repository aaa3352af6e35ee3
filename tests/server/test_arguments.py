"""What functions of routes get from a request, and how requests are refused."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlencode

import pytest
from pydantic import BaseModel, Field
from starlette.requests import Request

from allranks.errors import UsageError
from allranks.server.arguments import BODY, QUERY, Given, signature

Count = Annotated[int, Field(ge=0)]


class Point(BaseModel, extra="forbid"):
    x: Count
    tags: list[str] = []


def caller(request: Request, loud: bool = False) -> str:
    found = request.headers["x-by"]
    return found.upper() if loud else found


def asked(function: Any, query: Any = (), body: bytes = b"", **path: str) -> Any:
    scope = {
        "type": "http",
        "method": "GET",
        "path_params": path,
        "query_string": urlencode(query).encode(),
        "headers": [(b"x-by", b"me")],
    }
    names = "/".join(f"{{{name}}}" for name in path)
    return signature(function, f"/jobs/{names}").call(Request(scope), body)


def test_from_path_and_query_with_defaults() -> None:
    def route(name: str, after: Count, force: bool = False, most: Count | None = None) -> Any:
        return name, after, force, most

    assert asked(route, [("after", "3")], name="j") == ("j", 3, False, None)
    query = [("after", "3"), ("force", "true"), ("most", "7"), ("other", "x")]
    assert asked(route, query, name="j") == ("j", 3, True, 7)
    assert asked(route, [("after", "1"), ("after", "2")], name="j")[1] == 2


def test_lists_and_models_from_the_query() -> None:
    def route(
        job: list[str], point: Annotated[Point, QUERY], label: list[str] | None = None
    ) -> Any:
        return job, point, label

    query = [("job", "a"), ("job", "b"), ("x", "2"), ("tags", "t"), ("tags", "u")]
    assert asked(route, query) == (["a", "b"], Point(x=2, tags=["t", "u"]), None)
    assert asked(route, [*query, ("label", "l")])[2] == ["l"]


def test_bodies() -> None:
    def model(point: Point) -> Any:
        return point

    def plain(data: Annotated[dict[str, int], BODY]) -> Any:
        return data

    def optional(data: Annotated[Any, BODY] = None) -> Any:
        return data

    assert asked(model, body=b'{"x": 1}') == Point(x=1)
    assert asked(plain, body=b'{"x": 1}') == {"x": 1}
    assert asked(optional) is None
    assert asked(optional, body=b"[1]") == [1]


def test_given_by_functions_that_have_arguments_too() -> None:
    def route(name: str, who: Annotated[str, Given(caller)]) -> Any:
        return name, who

    assert asked(route, name="j") == ("j", "me")
    assert asked(route, [("loud", "1")], name="j") == ("j", "ME")


@pytest.mark.parametrize(
    ("query", "body", "message", "where"),
    [
        ([], b'{"x": 1}', "`after` is required", "after"),
        ([("after", "x")], b'{"x": 1}', "must be a whole number, not `x`", "after"),
        ([("after", "-1")], b'{"x": 1}', "must be at least 0, not `-1`", "after"),
        ([("after", "1")], b"", "the request has no body", ""),
        ([("after", "1")], b"null", "the request has no body", ""),
        ([("after", "1")], b"{]", "not JSON: expecting property name", "body"),
        ([("after", "1")], b"[]", "must be a mapping of keys to values, not a list", ""),
        ([("after", "1")], b"{}", "`x` is required", "x"),
        ([("after", "1")], b'{"x": 1, "tags": [1]}', "must be text, not `1`", "tags.0"),
        ([("after", "1")], b'{"x": 1, "tag": []}', "`tag` is not a key", "tag"),
    ],
)
def test_refused(query: Any, body: bytes, message: str, where: str) -> None:
    def route(after: Count, point: Point) -> Any:
        raise AssertionError(json.dumps([after, point.x]))

    with pytest.raises(UsageError) as refused:
        asked(route, query, body)
    assert refused.value.message.startswith(message)
    assert refused.value.where == where
    assert "/openapi.json" in (refused.value.hint or "")
