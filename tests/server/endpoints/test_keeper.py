"""What the router is told of endpoints."""

from __future__ import annotations

from allranks.serve.table import Route, Site
from allranks.server.endpoints.keeper import ready_within, site
from allranks.store.endpoints import DeploymentRow, EndpointRow


def test_numbers_that_are_text_in_a_file():
    endpoint = EndpointRow("e", {"name": "e", "traffic": {"blue": "100"}}, ["a"], 0.0, "me")
    spec = {
        "name": "blue",
        "endpoint_name": "e",
        "command": "x",
        "request_settings": {"request_timeout_ms": "3000"},
        "readiness_probe": {"period": "2", "failure_threshold": "5"},
    }
    row = DeploymentRow("e", "blue", spec, {}, 1, 0.0, "me")
    assert site(endpoint, [row]) == Site(
        "e", ("a",), {"blue": 100}, {}, (Route("blue", (), timeout=3.0),)
    )
    assert ready_within(row) == 20.0
