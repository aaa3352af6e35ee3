"""What the result of a step depends on."""

from __future__ import annotations

import pytest

from allranks.core.parents.reuse import changed, fingerprint, parts_of, why_not
from allranks.core.plan import InputTask, MetricTask, OutputTask, Task

TASK = Task(
    "p_train",
    "exp",
    "python train.py --lr ${{inputs.lr}}",
    inputs=(InputTask("lr", text="0.1"), InputTask("data", source="/data")),
    outputs=(OutputTask("model", "/jobs/p_train/named-outputs/model"),),
    record="/jobs/p_train",
    variables={"A": "1"},
)
GIVEN = {"code": "c1", "environment": "e1", "contents": {"data": "content 1"}}


def test_names_folders_and_places_do_not_count():
    same = TASK._replace(
        job="q_train",
        experiment="other",
        record="/jobs/q_train",
        base={"PATH": "/x"},
        code="digest",
        parent="q",
        cache="/c",
        outputs=(OutputTask("model", "/jobs/q_train/named-outputs/model"),),
        timeout=5,
    )
    assert fingerprint(parts_of(same, **GIVEN)) == fingerprint(parts_of(TASK, **GIVEN))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"command": "python train.py"}, "the command"),
        ({"variables": {"A": "2"}}, "the variables"),
        ({"nodes": 2}, "the settings"),
        ({"procs": 2}, "the settings"),
        ({"gpus": 1}, "the settings"),
        ({"distribution": "pytorch"}, "the settings"),
        ({"options": {"port": 1}}, "the settings"),
        ({"parameters": {"x": "1"}}, "the parameters"),
        ({"metrics": (MetricTask("loss", "loss (.*)"),)}, "the metrics"),
        ({"outputs": ()}, "the outputs"),
        ({"outputs": (OutputTask("model", "/x", is_file=True),)}, "the outputs"),
        ({"inputs": (InputTask("lr", text="0.2"), TASK.inputs[1])}, "the input lr"),
        ({"inputs": (TASK.inputs[0],)}, "the input data"),
        (
            {"inputs": (TASK.inputs[0], InputTask("data", source="/data", mode="download"))},
            "the input data",
        ),
    ],
)
def test_all_else_counts_and_is_named(change, name):
    parts, other = parts_of(TASK, **GIVEN), parts_of(TASK._replace(**change), **GIVEN)
    assert fingerprint(parts) != fingerprint(other)
    assert changed(other, parts) == [name]
    assert why_not(other, "p_train", parts) == f"changed since p_train: {name}"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"code": "c2"}, "the code"),
        ({"environment": "e2"}, "the environment"),
        ({"contents": {"data": "content 2"}}, "the input data"),
        ({"more": {"the sweep": {"n": 2}}}, "the sweep"),
    ],
)
def test_contents_count(given, name):
    parts, other = parts_of(TASK, **GIVEN), parts_of(TASK, **{**GIVEN, **given})
    assert changed(other, parts) == [name]


def test_several_changes_are_listed_and_none_means_the_outputs():
    parts = parts_of(TASK, **GIVEN)
    other = parts_of(TASK._replace(command="x"), **{**GIVEN, "code": "c2"})
    assert why_not(other, "j", parts) == "changed since j: the command and the code"
    assert why_not(parts, "j", parts) == "the outputs of j were changed or deleted"
