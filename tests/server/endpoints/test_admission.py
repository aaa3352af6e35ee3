"""What a deployment is refused for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from allranks.core.endpoints.record import Deployment, Revision
from allranks.errors import Conflict, NotFound
from allranks.server.endpoints.admission import require_model_of_before, with_changes


def test_no_return_to_a_model_that_was_deleted():
    def gone(reference: object) -> None:
        raise NotFound("model birds:1 not found")

    services: Any = SimpleNamespace(models=SimpleNamespace(versions=SimpleNamespace(row=gone)))
    row = Deployment("e", "d", {"model": "azureml:birds:2"}, {}, 2, 0.0, "me")
    require_model_of_before(row, services)
    before = Revision({"model": "azureml:birds:1"}, {}, "", 1)
    with pytest.raises(Conflict, match="e/d cannot go back: its model azureml:birds:1 was deleted"):
        require_model_of_before(row._replace(previous=before), services)


def test_changes_reach_the_replicas():
    spec = {"name": "d", "endpoint_name": "e", "command": "c", "compute": "local", "code": "src"}
    job = {"command": "c", "compute": "local", "code": "/here/src", "environment_variables": {}}
    row = Deployment("e", "d", spec, {"spec": job, "code": "digest"}, 1, 0.0, "me")
    changes = {"environment_variables": {"A": "b"}, "instance_type": "big", "compute": None}
    made = with_changes(row, changes)
    assert "compute" not in made["deployment"]
    assert made["submission"] == {
        "code": "digest",
        "spec": {
            "command": "c",
            "code": "/here/src",
            "environment_variables": {"A": "b"},
            "resources": {"instance_type": "big"},
        },
    }
