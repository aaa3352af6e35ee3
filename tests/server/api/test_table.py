"""The table of people's routes, and the description made from it."""

import inspect

import pytest

from allranks.server.api.endpoint import Endpoint
from allranks.server.api.openapi import description
from allranks.server.api.route_table import ROUTES


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
