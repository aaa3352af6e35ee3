"""What a model is, by the names of its files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.data.model_flavor import belongs_to, flavor, model_type, script_problem

NAMES = st.text(st.characters(codec=None), max_size=12)
PATHS = st.lists(
    NAMES | st.sampled_from(["a.pt", "b/c.PTH", "saved_model.pb", "m.keras", "m.onnx", "MLmodel"]),
    max_size=5,
)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["model.pt"], "pytorch"),
        (["a/b/MODEL.PTH", "config.json"], "pytorch"),
        (["saved_model.pb", "variables/variables.index"], "tensorflow"),
        (["model.keras"], "tensorflow"),
        (["model.onnx", "model.onnx.data"], "onnx"),
        (["MLmodel", "data/model.pth"], "pytorch"),
        (["model.onnx", "model.pt"], None),
        (["model.bin"], None),
        ([".pt"], None),
        (["model.pt/readme"], None),
        ([], None),
    ],
)
def test_who_reads_it(paths: list[str], expected: str | None) -> None:
    assert flavor(paths) == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["MLmodel", "model.pkl"], "mlflow_model"),
        (["sub/MLmodel"], "custom_model"),
        (["mlmodel"], "custom_model"),
        ([], "custom_model"),
    ],
)
def test_what_type_it_is(paths: list[str], expected: str) -> None:
    assert model_type(paths) == expected


@given(PATHS)
def test_there_is_always_an_answer_and_the_order_does_not_matter(paths: list[str]) -> None:
    assert flavor(paths) in ("pytorch", "tensorflow", "onnx", None)
    assert flavor(paths) == flavor(paths[::-1])
    assert model_type(paths) == model_type(paths[::-1])


def test_what_onnx_keeps_beside() -> None:
    beside = [
        "model.onnx.data",
        "model.onnx_data",
        "model.onnx_data_1",
        "model.onnx",
        "m.onnx.data",
    ]
    assert belongs_to("model.onnx", beside) == beside[:3]
    assert belongs_to("model.pt", ["model.pt.data"]) == []


@given(NAMES, PATHS)
def test_nothing_belongs_to_it_that_is_not_beside_it(name: str, beside: list[str]) -> None:
    found = belongs_to(name, beside)
    assert {*found} <= {*beside}
    assert name not in found


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["m/MLmodel", "m/x"], True),
        (["a.onnx", "a.onnx.data"], True),
        (["deep/a.joblib"], True),
        (["a.pt", "b.pt"], False),
        (["weights", "README"], False),
        ([], False),
    ],
)
def test_which_models_need_no_scoring_script(paths: list[str], expected: bool):
    assert (script_problem("m", paths) is None) == expected
