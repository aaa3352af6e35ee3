"""A misspelt key is one error, not also the one of what is missing without it."""

import pytest

from allranks.errors import SpecError
from allranks.spec.any_job import parse_any
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import steps_of

_SWEEP = {
    "type": "sweep",
    "trial": {"command": "train ${{search_space.lr}}"},
    "search_space": {"lr": {"type": "uniform", "min_value": 0, "max_value": 1}},
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 2},
}
_COMPONENT = {"type": "command", "command": "ls ${{inputs.model}}"}
_COMPONENT |= {"name": "c", "inputs": {"model": {"type": "uri_folder"}}}
_TRAIN = {"type": "command", "command": "train", "outputs": {"model": {"type": "uri_folder"}}}


def _checked(data: dict) -> None:
    job = parse_any(data)
    assert isinstance(job, PipelineJob)
    steps_of(job)


def _problems(data: dict) -> list[tuple[str | None, str | None]]:
    with pytest.raises(SpecError) as caught:
        _checked(data)
    return [(problem.where, problem.hint) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("data", "where", "key"),
    [
        ({"comand": "ls"}, "comand", "command"),
        ({"command": "ls", "inputs": {"d": {"pth": "x"}}}, "inputs.d.pth", "path"),
        ({**_SWEEP, "trial": {"comand": "ls"}}, "trial.comand", "command"),
        ({**_SWEEP, "limits": {"max_trials": 2}}, "limits.max_trials", "max_total_trials"),
        (
            {**{k: v for k, v in _SWEEP.items() if k != "limits"}, "limit": {}},
            "limit",
            "limits",
        ),
    ],
)
def test_of_a_job(data, where, key):
    assert _problems(data) == [(where, f"did you mean `{key}`?")]


@pytest.mark.parametrize(
    ("train", "model", "where", "word"),
    [
        ({"comand": "train"}, "${{parent.jobs.train.outputs.model}}", "train.comand", "command"),
        ({}, "${{parent.jobs.trian.outputs.model}}", "test.inputs.model", "train"),
        ({}, "${{parent.jobs.train.outputs.modl}}", "test.inputs.model", "model"),
        ({}, "${{parent.inputs.dta}}", "test.inputs.model", "data"),
    ],
)
def test_of_a_step(train, model, where, word):
    step = {**_TRAIN, **train}
    if train:
        del step["command"]
    test = {"type": "command", "component": _COMPONENT, "inputs": {"model": model}}
    inputs = {"data": {"type": "uri_folder", "path": "d"}}
    data = {"type": "pipeline", "inputs": inputs, "jobs": {"train": step, "test": test}}
    assert _problems(data) == [(f"jobs.{where}", f"did you mean `{word}`?")]


def test_of_an_input_of_a_component_and_of_a_parallel_step():
    test = {"type": "command", "component": _COMPONENT, "inputs": {"mdel": 1}}
    score = {"type": "parallel", "mini_batch_sze": 2, "task": {"entry_script": "s.py"}}
    data = {"type": "pipeline", "jobs": {"test": test, "score": score}}
    assert ("jobs.test.inputs.mdel", "did you mean `model`?") in _problems(data)
    assert ("jobs.score.mini_batch_sze", "did you mean `mini_batch_size`?") in _problems(data)
    assert not any(where == "jobs.test" for where, _ in _problems(data))
