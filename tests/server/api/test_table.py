"""The table of people's routes, and the description made from it."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from starlette.responses import Response

import allranks
from allranks.api import routes
from allranks.api.routes import ROUTES
from allranks.server.api.endpoint import Endpoint
from allranks.server.api.openapi import description
from allranks.server.http.content import Content

_TYPES = ("assets", "batch", "computes", "endpoints", "jobs", "metrics", "schedules", "server")


def _answer(row: routes.Route[object]) -> object:
    """What the function of a route is annotated with; bytes for what is not JSON."""
    hints = get_type_hints(Endpoint(row).signature().function, include_extras=True)
    hint = hints["return"]
    if get_origin(hint) is Annotated:
        mark = next(mark for mark in get_args(hint) if isinstance(mark, Content))
        return mark.type if mark.media_type == "application/json" else bytes
    return bytes if isinstance(hint, type) and issubclass(hint, Response) else hint


def _is_part(of_table: object, of_function: object) -> bool:
    """Clients read some unions as the part that they ask for."""
    parts = get_args(of_function)
    if of_table == of_function or of_table in parts:
        return True
    inside = [args for part in (of_function, *parts) for args in get_args(part)]
    ours = get_args(of_table)
    return bool(ours) and (ours[0] in inside or any(ours[0] in get_args(each) for each in inside))


@pytest.mark.medium
def test_functions_answer_what_clients_expect() -> None:
    modules = {name: import_module(f"allranks.api.{name}") for name in _TYPES}
    hints = get_type_hints(routes, globalns={**vars(routes), **modules})
    wrong = []
    for name, row in vars(routes).items():
        if isinstance(row, routes.Route) and row != routes.merged_log:
            expected, answer = get_args(hints[name])[0], _answer(row)
            if not _is_part(expected, answer):
                wrong.append(f"{name}: {expected} is not {answer}")
    assert wrong == []


@pytest.mark.medium
def test_every_function_of_the_table_is_there_and_its_arguments_can_be_read() -> None:
    assert len({row.address for row in ROUTES}) == len(ROUTES)
    for row in ROUTES:
        arguments = {each.name: each for each in Endpoint(row).signature().arguments}
        assert not inspect.isclass(Endpoint(row).signature().function), row
        assert arguments, row


@pytest.mark.medium
def test_the_description_names_each_route_with_its_arguments() -> None:
    told = description(map(Endpoint, ROUTES))
    found = {f"{way.upper()} {path}" for path, ways in told["paths"].items() for way in ways}
    assert len(found) == len(ROUTES)
    wait = told["paths"]["/api/v1/jobs/{name}/wait"]["get"]
    assert [each["name"] for each in wait["parameters"]] == ["name", "timeout"]
    assert wait["parameters"][1]["schema"] == {"minimum": 0, "type": "number"}
    assert [each["required"] for each in wait["parameters"]] == [True, False]
    bundle = told["paths"]["/api/v1/jobs/{name}/bundle"]["post"]["requestBody"]["content"]
    piece = {"$ref": "#/components/schemas/Piece"}
    assert bundle["application/json"]["schema"] == {"items": piece, "type": "array"}
    assert set(told["components"]["schemas"]["Piece"]["required"]) == {"path", "size"}
    listed = told["paths"]["/api/v1/jobs"]["get"]["parameters"]
    assert {"status", "tag", "limit"} <= {each["name"] for each in listed}


@pytest.mark.parametrize("package", ["cli", "sdk", "compat", "ui"])
def test_no_client_writes_an_address_of_its_own(package: str) -> None:
    sources = (Path(allranks.__file__).parent / package).rglob("*.py")
    assert [file.name for file in sources if routes.PREFIX in file.read_text()] == []
