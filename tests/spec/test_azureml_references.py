"""Addresses of what other jobs left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.errors import SpecError
from allranks.spec.fields.azureml_references import (
    OutputOf,
    address_of,
    left_at,
    of_run,
    output_of,
    output_uri,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (output_uri("j", "o"), OutputOf("j", "o")),
        ("azureml://jobs/j/outputs/o", OutputOf("j", "o")),
        ("azureml://jobs/j/outputs/o/paths", OutputOf("j", "o")),
        ("azureml://jobs/j/outputs/o/paths/a b/c\n", OutputOf("j", "o", "a b/c\n")),
        ("azureml://jobs/j/outputs/o/paths/./a//b/", OutputOf("j", "o", "a/b")),
        ("azureml://jobs/j/outputs/o/paths//etc/passwd", OutputOf("j", "o", "etc/passwd")),
        ("azureml://jobs/j/outputs/paths/paths/paths", OutputOf("j", "paths", "paths")),
        ("azureml://datastores/d/paths/p", None),
        ("./azureml://jobs/j/outputs/o", None),
        ("/data", None),
    ],
)
def test_addresses(path: str, expected: OutputOf | None) -> None:
    assert output_of(path, "inputs.a.path") == expected


@pytest.mark.parametrize(
    "path",
    [
        "azureml://jobs/",
        "azureml://jobs/j",
        "azureml://jobs/j/outputs/",
        "azureml://jobs/j/outputs/o/path/p",
        "azureml://jobs/j/outputs/o/paths/../x",
        "azureml://jobs/j/outputs/o/paths/a/..",
    ],
)
def test_what_is_no_address(path: str) -> None:
    with pytest.raises(SpecError, match="not the address") as caught:
        output_of(path, "inputs.a.path")
    assert caught.value.where == "inputs.a.path"
    assert "paths/PATH" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("path", "output", "rest"),
    [
        ("outputs/model.pt", "", "outputs/model.pt"),
        ("./outputs//a b/", "", "outputs/a b"),
        ("artifacts/outputs/model.pt", "", "outputs/model.pt"),
        ("artifacts", "", ""),
        ("outputs.model/best.pt", "model", "best.pt"),
        ("outputs.model", "model", ""),
        ("outputs./x", "", "outputs./x"),
        ("named-outputs/model/best.pt", "model", "best.pt"),
        ("named-outputs", "", "named-outputs"),
        ("model", "", "model"),
    ],
)
def test_paths_of_what_a_job_left(path: str, output: str, rest: str) -> None:
    assert left_at("j", path) == OutputOf("j", output, rest)
    assert of_run(f"runs:/j/{path}") == OutputOf("j", output, rest)


@pytest.mark.parametrize(
    "path", ["", ".", "/etc/passwd", "../x", "outputs/../../x", "outputs.o/.."]
)
def test_paths_that_lead_elsewhere(path: str) -> None:
    with pytest.raises(SpecError, match="not a path of a job's file") as caught:
        left_at("j", path)
    assert "outputs/model.pt" in str(caught.value.hint)


def test_what_is_no_run() -> None:
    assert of_run("outputs/model.pt") is None
    with pytest.raises(SpecError):
        of_run("runs:/j")


steps = st.sampled_from(["outputs", "outputs.o", "named-outputs", "artifacts", "model.pt", "o p"])


@given(st.lists(steps, min_size=1, max_size=4).map("/".join))
def test_the_address_of_what_a_job_left_means_the_same(path: str) -> None:
    of = left_at("j", path)
    assert left_at("j", address_of(of)) == of
    assert address_of(left_at("j", address_of(of))) == address_of(of)
