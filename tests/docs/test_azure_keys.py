"""Every key of Azure's schemas, every argument of its first SDK and every flag of ssm works, is
noted or is refused."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from allranks.compat.azure.names_v1 import NAMES_V1
from allranks.compat.azure.v1.exceptions import NotThere
from allranks.compat.azure.v1.idle import SO_HERE, unread
from allranks.compat.ssm import parser, run_line

_ROOT = Path(__file__).parents[2]
_SOURCE = _ROOT / "src" / "allranks"


@pytest.fixture(scope="module")
def keys() -> Iterator[ModuleType]:
    sys.path.insert(0, str(_ROOT / "docs"))
    try:
        yield importlib.import_module("azure_keys")
    finally:
        sys.path.remove(str(_ROOT / "docs"))


def test_every_key_of_every_schema(keys: ModuleType) -> None:
    """Each is tried. What is used is read somewhere beyond the models."""
    assert keys.SCHEMAS.keys() == keys.PLACES.keys()
    verdicts = list(keys.verdicts())
    assert len(verdicts) > 350
    assert {each.status for each in verdicts} == {"used", "noted", "refused"}
    of = {(each.kind, each.key): each.status for each in verdicts}
    assert of["command job", "identity"] == of["queue_settings", "priority"] == "noted"
    assert of["resources", "max_instance_count"] == of["compute", "size"] == "noted"
    assert of["ray", "address"] == of["azure_file", "type"] == "refused"
    assert of["resources", "shm_size"] == of["pattern", "week_days"] == "used"
    refused = {each.key for each in verdicts if each.status == "refused"}
    assert refused - {key for kind, key in of if kind == "azure_file"} == {
        *("address", "dashboard_port", "include_dashboard"),
        *("allowed_deployment_templates", "default_deployment_template", "system_metadata"),
        *("auto_delete_setting", "comment", "default", "model", "path_on_compute"),
        *("queue_settings", "services"),
    }
    models = {_SOURCE / "spec" / name for name in ("services.py", "job_parts.py")}
    paths = (each for each in _SOURCE.rglob("*.py") if "descriptions" not in each.parts)
    words = set(
        re.findall(r"\w+", "".join(each.read_text() for each in paths if each not in models))
    )
    # The identity as a whole is noted.
    noted_above = {"object_id", "msi_resource_id"}
    assert {each.key for each in verdicts if each.status == "used"} - words == noted_above


def _methods() -> Iterator[tuple[str, str, Any]]:
    """Each method of a class of Azure's that is here."""
    arguments = json.loads((_ROOT / "tests/compat/azure/v1_arguments.json").read_text())
    for place, names in arguments.items():
        module, _, rest = place.partition(":")
        cls, _, method = rest.partition(".")
        kind = getattr(importlib.import_module(f"allranks.compat.azure.v1.{module}"), cls)
        member = inspect.getattr_static(kind, method, None)
        if member is not None:
            function = inspect.unwrap(getattr(member, "__func__", member))
            if inspect.isfunction(function):
                yield place, names, function


def test_every_argument_of_the_first_sdk(capsys: pytest.CaptureFixture[str]) -> None:
    """One that is taken is read, or noted; another is refused by Python or by `no_more`."""
    noted, walked = set(), 0
    for place, names, function in _methods():
        parameters = inspect.signature(function).parameters
        idle = unread(function)
        more = next((e.name for e in parameters.values() if e.kind is e.VAR_KEYWORD), None)
        for name in names.split():
            walked += 1
            if name in idle or (name not in parameters and more in idle):
                noted |= set() if name in SO_HERE else {f"{place}({name})"}
    assert walked > 400
    assert "compute:AmlCompute.wait_for_completion(min_node_count)" in noted
    assert "data.datasets:FileDataset.as_mount(path_on_compute)" in noted
    assert "run_config:ScriptRunConfig.__init__(max_run_duration_seconds)" not in noted

    # By the names that programs import, they are said once.
    sys.modules.pop("azureml.core", None)
    from allranks.compat.azure.finder import Finder

    module = importlib.util.module_from_spec(Finder().find_spec("azureml.core"))  # type: ignore
    module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]
    for _ in range(2):
        module.Workspace("s", "g", "w", auth=object(), sku="basic", tags=None)
        module.Environment.from_docker_image("e", "python:3", container_registry=object())
    with pytest.raises(NotThere):
        module.Environment("e", no_such=1)
    assert capsys.readouterr().err.splitlines() == [
        "note: no effect here: auth, sku of Workspace",
        "note: no effect here: container_registry of Environment.from_docker_image",
    ]
    assert all(isinstance(names, dict) for names in NAMES_V1.values())


# Of simple-sagemaker 0.9.24.
_FLAGS = {
    "run shell process": "project_name task_name prefix bucket_name dependencies instance_type "
    "instance_count volume_size max_run_mins aws_repo_name repo_name image_tag framework "
    "docker_file_path_or_content framework_version input_path input_s3 input_task force_running "
    "clean_state keep_state tag output_path download_state download_model download_output",
    "run shell": "no_spot use_spot_instances max_wait_mins py_version model_uri distribution "
    "metric_definitions",
    "run": "source_dir entry_point",
    "shell": "cmd_line dir_files",
    "process": "code entrypoint command env arguments",
    "data": "project_name task_name prefix bucket_name clean_state output_path download_state "
    "download_model download_output",
}


def test_every_flag_of_ssm(capsys: pytest.CaptureFixture[str]) -> None:
    (choice,) = (e for e in parser.parser()._actions if e.choices)
    text = inspect.getsource(parser) + inspect.getsource(run_line)
    for kinds, flags in _FLAGS.items():
        for kind in kinds.split():
            own = choice.choices[kind]._option_string_actions  # type: ignore[index, union-attr]
            for flag in flags.split():
                read = f"options.{own[f'--{flag}'].dest}" in text or flag.startswith("download_")
                assert read != (f"--{flag}" in parser.IDLE_FLAGS), flag
    line = "run -p p -t t -e x -b bucket --pv py3 --max_wait_mins 9 --rn repo -v 30"
    options, _, _ = parser.read(line.split())
    assert parser.idle_notes(options) == [
        "note: no effect here: --bucket_name (there is no bucket)",
        "note: no effect here: --max_wait_mins (max_run_mins is the limit)",
        "note: no effect here: --py_version (it is the current Python's)",
        "note: no effect here: --repo_name (environments are built on the nodes)",
    ]
