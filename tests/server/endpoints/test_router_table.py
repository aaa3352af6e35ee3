"""What the router is told of endpoints."""

from __future__ import annotations

import pytest

from allranks.core.endpoints.record import Deployment, Endpoint, Replica
from allranks.errors import SpecError
from allranks.serve.table import Backend, Route, Site, pack
from allranks.server.endpoints.router_table import router_table, site
from allranks.spec.endpoint import parse_deployment


def test_numbers_that_are_text_in_a_file():
    endpoint = Endpoint("e", {"name": "e", "traffic": {"blue": "100"}}, 0.0, "me", ("a",))
    spec = {
        "name": "blue",
        "endpoint_name": "e",
        "command": "x",
        "instance_count": "3.0",
        "request_settings": {"request_timeout_ms": "3000"},
        "readiness_probe": {"period": "2", "failure_threshold": "5"},
    }
    far = Replica("j", 1, "far:name:1234", 0.0)
    row = Deployment("e", "blue", spec, {}, 1, 0.0, "me", replicas=(far,))
    route = Route("blue", (Backend("j", "unix:name"),), timeout=3.0)
    assert site(endpoint._replace(deployments={"blue": row})) == Site(
        "e", ("a",), {"blue": 100}, {}, (route,)
    )
    far = far._replace(model="azureml:m:1")
    row = row._replace(replicas=(far,))
    (made,) = site(endpoint._replace(deployments={"blue": row})).routes
    assert made.backends[0].model == "azureml:m:1", "of the replica: an update may have another"
    assert row.ready_within == 20.0
    assert row.instances == 3


def test_an_endpoint_that_fails_does_not_stop_the_others():
    settings = {"request_timeout_ms": 10**399}
    spec = {"name": "d", "endpoint_name": "bad", "command": "x", "request_settings": settings}
    row = Deployment("bad", "d", spec, {}, 1, 0.0, "me")
    endpoints = [Endpoint(name, {"name": name}, 0.0, "me", ("a",)) for name in ("bad", "good")]
    endpoints[0] = endpoints[0]._replace(deployments={"d": row})
    assert router_table(endpoints) == pack([Site("good", ("a",), {}, {}, ())])
    with pytest.raises(SpecError, match="request_timeout_ms"):
        parse_deployment(spec)
