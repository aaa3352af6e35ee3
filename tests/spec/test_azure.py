"""Azure ML's own client is the judge of what a job file may say."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from allranks import AllranksError, Input, load_job
from tests.frameworks.environments import environment
from tests.spec.azure_corpus import ACCEPTED, REFUSED, SOONER, SUPERSETS, whole

JUDGE = Path(__file__).with_name("azure_judge.py")
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "azureml.md"
OURS_TAKES = {**ACCEPTED, **{k: v for each in SUPERSETS.values() for k, v in each.items()}}
OURS_REFUSES = {**REFUSED, **{k: v for each in SOONER.values() for k, v in each.items()}}
THEIRS_TAKES = {**ACCEPTED, **{k: v for each in SOONER.values() for k, v in each.items()}}
EVERY = {**OURS_TAKES, **OURS_REFUSES}

FULL = """
command: python train.py --data ${{inputs.data}}
code: ./src
display_name: d
description: x
tags: {a: b}
environment: azureml:e:1
environment_variables: {A: x}
compute: azureml:gpu
resources: {instance_count: 2, instance_type: t, shm_size: 2g, docker_args: a, locations: [w]}
distribution: {type: PyTorch, process_count_per_instance: 4}
limits: {timeout: 3600}
inputs:
  lr: 0.1
  n: 8
  t: x
  data: {path: ./data}
  model: {type: mlflow_model, path: "azureml:m:1", mode: download}
outputs: {o: {}, p: {type: uri_file, mode: upload}, r: }
services: {t: {type: tensor_board, log_dir: l, port: 6006}}
queue_settings: {job_tier: Spot, priority: High}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("src", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "f").write_text("x: 1\n")
    return tmp_path


def judged(folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """What Azure's client says of each file, by its key."""
    keys = list(files)
    for number, key in enumerate(keys):
        (folder / f"{number}.yml").write_text(files[key])
    python = environment("azure") / "bin" / "python"
    done = subprocess.run([python, JUDGE, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout).items()
    return {keys[int(name)]: said for name, said in told if name.isdecimal()}


@pytest.mark.parametrize("case", OURS_TAKES)
def test_taken(folder: Path, case: str) -> None:
    (folder / "job.yml").write_text(whole(OURS_TAKES[case]))
    job = load_job(folder / "job.yml")
    assert load_job(job.to_yaml()) == job


@pytest.mark.parametrize("case", OURS_REFUSES)
def test_refused(folder: Path, case: str) -> None:
    (folder / "job.yml").write_text(whole(OURS_REFUSES[case]))
    with pytest.raises(AllranksError) as caught:
        load_job(folder / "job.yml")
    assert caught.value.hint


@pytest.mark.parametrize("name", [*SUPERSETS, *SOONER])
def test_differences_are_documented(name: str) -> None:
    assert re.search(rf"^\| {name} \|", DOCS.read_text(), re.MULTILINE)


@pytest.mark.frameworks
@pytest.mark.timeout(600)
@pytest.mark.end_to_end
def test_azure_says_the_same(folder: Path) -> None:
    said = judged(folder, {key: whole(case) for key, case in EVERY.items()})
    wrong = [
        f"{key!r}: {'taken' if 'job' in each else each['error'][:500]}"
        for key, each in said.items()
        if ("job" in each) != (key in THEIRS_TAKES)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.frameworks
@pytest.mark.timeout(600)
def test_azure_reads_the_same(folder: Path) -> None:
    theirs = judged(folder, {"full": FULL})["full"]["job"]
    ours = load_job(folder / "0.yml")
    data = ours.to_dict()
    same = ("display_name", "description", "tags", "environment", "environment_variables")
    assert {k: theirs["component"][k] for k in (*same, "command")} == {
        k: data[k] for k in (*same, "command")
    }
    same = ("compute", "resources", "distribution", "queue_settings", "services", "limits")
    assert {k: theirs[k] for k in same} == {k: data[k] for k in same}
    literals = ("lr", "n", "t")
    assert [theirs["inputs"][k] for k in literals] == [ours.inputs[k] for k in literals]
    for name in ("data", "model"):
        given = ours.inputs[name]
        assert isinstance(given, Input)
        assert given.type == theirs["component"]["inputs"][name]["type"]
    assert theirs["inputs"]["model"] == data["inputs"]["model"]
    outputs = theirs["component"]["outputs"]
    assert {k: each["type"] for k, each in outputs.items()} == {
        k: each.type for k, each in ours.outputs.items()
    }
    assert outputs["p"]["mode"] == ours.outputs.p.mode
