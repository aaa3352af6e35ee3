"""Which files are of batch endpoints and their deployments."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.errors import SpecError, UsageError
from allranks.spec.batch import (
    component_of,
    component_of_job,
    invocation,
    is_batch,
    of_request,
    parse_batch_deployment,
    settings_of_job,
    with_changes,
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


STEPS = {"a": {"type": "command", "command": "true"}}


def test_a_pipeline_job_as_a_component_has_its_literals_as_defaults():
    inputs = {"n": 2, "x": {"type": "number", "value": 0.5}, "on": True, "d": FOLDER, "w": "ü"}
    job = {"jobs": STEPS, "inputs": inputs, "outputs": {"o": None, "f": {"type": "uri_file"}}}
    assert component_of_job(job) == {
        "type": "pipeline",
        "jobs": STEPS,
        "inputs": {
            "n": {"type": "integer", "default": 2},
            "x": {"type": "number", "default": 0.5},
            "on": {"type": "boolean", "default": True},
            "d": {"type": "uri_folder"},
            "w": {"type": "string", "default": "ü"},
        },
        "outputs": {"o": {"type": "uri_folder"}, "f": {"type": "uri_file"}},
    }
    declared = {"n": {"type": "number", "max": 3}, "free": {"type": "string"}}
    component = {"type": "pipeline", "jobs": STEPS, "inputs": declared}
    made = component_of_job({"component": component, "inputs": {"n": 2}})
    assert made["inputs"] == {**declared, "n": {"type": "number", "max": 3, "default": 2}}
    job = {"compute": "c", "settings": {"force_rerun": True}}
    assert settings_of_job(job) == {"default_compute": "c", "force_rerun": True}


def test_a_pipelines_deployment_has_a_component_or_a_job():
    keys = {"name": "d", "endpoint_name": "e"}
    assert is_batch({**keys, "job_definition": "azureml:j"})
    for job in ("azureml:j", "j", "/subscriptions/s/workspaces/w/jobs/j"):
        assert parse_batch_deployment({**keys, "job_definition": job}).job_name == "j"
    own = parse_batch_deployment({**keys, "job_definition": {"type": "pipeline", "jobs": STEPS}})
    assert component_of(own)["jobs"] == STEPS
    both = {"job_definition": "j", "component": "c"}
    for other in ({"type": "pipeline"}, both):
        with pytest.raises(SpecError, match="has a component or a job"):
            parse_batch_deployment({**keys, **other})


def test_a_deployment_with_other_keys_keeps_its_files():
    data = {
        **MODEL,
        "model": "azureml:m:1",
        "code_configuration": {"code": ".", "scoring_script": "s"},
    }
    component = component_of(parse_batch_deployment(data))
    (step,) = component["jobs"].values()
    step |= {"code": None, "snapshot": "f" * 64, "environment": "current"}
    changed, after = with_changes(data, component, {"mini_batch_size": 3, "compute": "c"})
    (new,) = after["jobs"].values()
    assert (changed["mini_batch_size"], new["compute"]) == (3, "c")
    assert '"mini_batch_size": 3' in new["command"]
    assert (new["snapshot"], new["environment"]) == ("f" * 64, "current")
    with pytest.raises(UsageError, match="comes with files"):
        with_changes(data, component, {"environment": {"conda_file": "c.yml"}})
    pipeline = {"name": "d", "endpoint_name": "e", "component": "azureml:c:1"}
    changed, same = with_changes(pipeline, component, {"settings": {"force_rerun": True}})
    assert (changed["settings"], same) == ({"force_rerun": True}, component)
