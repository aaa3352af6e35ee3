"""Which files are of batch endpoints and their deployments."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.errors import UsageError
from allranks.spec.batch import (
    component_of,
    invocation,
    is_batch,
    of_request,
    parse_batch_deployment,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"type": "model", "settings": {}}, True),
        ({"type": "pipeline"}, True),
        ({"settings": {"mini_batch_size": 7}}, True),
        ({"output_action": "append_row"}, True),
        ({"settings": 7}, False),
        ({"type": "managed", "scale_settings": {"type": "default"}}, False),
    ],
)
def test_a_file_without_a_schema_is_known_by_its_keys(data: dict[str, Any], expected: bool):
    assert is_batch({"name": "b", "endpoint_name": "e", **data}) is expected


MODEL = {"name": "d", "endpoint_name": "e", "type": "model", "model": {"path": "m"}}
FOLDER = {"type": "uri_folder", "path": "in"}


def test_azures_request_has_settings_too():
    data = {
        "InputData": {"any": {"JobInputType": "UriFolder", "Uri": "azureml:d:1"}},
        "OutputData": {"custom": {"JobOutputType": "UriFile", "Uri": "out/p.csv"}},
        "Resource": {"instanceCount": 2},
        "MiniBatchSize": 5,
        "Whatever": 1,
    }
    inputs, outputs, settings = of_request({"properties": data})
    assert inputs == {"any": {"type": "uri_folder", "path": "azureml:d:1"}}
    assert outputs == {"custom": {"type": "uri_file", "path": "out/p.csv"}}
    assert settings == {"instance_count": 2, "mini_batch_size": 5}


@pytest.mark.parametrize(
    ("dataset", "path"),
    [
        ({"dataInputType": "DataUrl", "Path": "https://a/b"}, "https://a/b"),
        ({"datasetName": "d", "datasetVersion": 2}, "azureml:d:2"),
    ],
)
def test_azures_first_request(dataset: dict[str, Any], path: str):
    inputs, _, _ = of_request({"properties": {"dataset": dataset}})
    assert inputs == {"job_input": {"type": "uri_folder", "path": path}}


def test_a_models_invocation_with_other_settings():
    component = component_of(parse_batch_deployment(MODEL))
    outputs = {"custom": {"type": "uri_file", "path": "out/p.csv"}}
    changed = {"max_concurrency_per_instance": 3}
    job = invocation(MODEL, component, {"any": FOLDER}, outputs, changed)
    step = job["component"]["jobs"]["batchscoring"]
    assert '"file_name": "p.csv"' in step["command"]
    assert step["distribution"]["process_count_per_instance"] == 3
    assert job["outputs"] == {"score": {"type": "uri_folder", "path": "out"}}
    with pytest.raises(UsageError, match="what is to be scored"):
        invocation(MODEL, component, {}, {}, {})
    with pytest.raises(UsageError, match="one output"):
        invocation(MODEL, component, {"any": FOLDER}, {"a": {}, "b": {}}, {})


def test_a_pipelines_invocation_has_its_own_inputs_or_none():
    component = {"type": "pipeline", "jobs": {"s": {"command": "true", "type": "command"}}}
    data = {"name": "d", "endpoint_name": "e", "component": component}
    assert invocation(data, component, {}, {}, {})["inputs"] == {}
    with pytest.raises(UsageError, match="no mini-batches"):
        invocation(data, component, {}, {}, {"mini_batch_size": 2})
