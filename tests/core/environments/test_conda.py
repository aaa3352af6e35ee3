"""Conda files as pip takes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from allranks.core.environments import conda
from allranks.errors import SpecError


def lines(*dependencies: object) -> list[str]:
    return [line for _, line in conda.read({"dependencies": list(dependencies)}).requirements]


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("numpy", "numpy"),
        ("NumPy", "numpy"),
        ("numpy=1.21", "numpy==1.21.*"),
        ("numpy=1.21.*", "numpy==1.21.*"),
        ("numpy==1.21.0", "numpy==1.21.0"),
        ("numpy=1.21.0=py38_0", "numpy==1.21.0"),
        ("numpy==1.2=*_cuda", "numpy==1.2"),
        ("numpy 1.2.*", "numpy==1.2.*"),
        ("numpy 1.2.3 build", "numpy==1.2.3"),
        ("numpy=*", "numpy"),
        ("numpy=1.21*", "numpy==1.21.*"),
        ("conda-forge::numpy >= 1.2, <2", "numpy>=1.2,<2"),
        ("numpy>=1.2,=1.3", "numpy>=1.2,==1.3.*"),
        ("numpy~=1.2", "numpy~=1.2"),
        ("numpy[version='>=1.2,<2',build=*cuda*]", "numpy>=1.2,<2"),
        ("numpy[build=*cuda*]", "numpy"),
        ("pytorch=1.6", "torch==1.6.*"),
        ("py-opencv", "opencv-python-headless"),
        ("matplotlib-base", "matplotlib"),
    ],
)
def test_a_package_as_pip_writes_it(written: str, taken: str):
    assert lines(written) == [taken]
    Requirement(taken)


@given(st.text(alphabet="abz019.=<>!~*,|[]' -_:", max_size=24))
def test_whatever_is_written_is_taken_or_refused(written: str):
    try:
        found = lines(written)
    except SpecError:
        return
    for each in found:
        Requirement(each)


def test_python_is_what_uv_is_asked_for():
    def python(spec: str) -> str:
        return conda.read({"dependencies": [spec]}).python

    assert [python(each) for each in ("python", "python=3.8", "python==3.8.13")] == [
        "",
        "3.8",
        "3.8.13",
    ]
    assert python("python>=3.8,<3.11") == ">=3.8,<3.11"


def test_pip_sections_are_kept_to_the_letter():
    pip = ["azureml-defaults", "--extra-index-url https://x/simple", "a @ https://x/a.whl"]
    assert lines("python=3.8", "pip=21", {"pip": pip}, {"pip": ["b"]}) == ["pip==21.*", *pip, "b"]


def test_what_wheels_bring_is_left_out_and_told():
    names = ["libdeflate", "cuda-nvcc", "xorg-libx11", "zlib-static"]
    assert lines(*names, "librosa", "libsvm") == ["librosa", "libsvm"]
    found = conda.read({"dependencies": ["cudatoolkit=11.1", "mkl", "numpy"]})
    assert [line for _, line in found.requirements] == ["numpy"]
    assert found.notes == (
        "left out: cudatoolkit=11.1 (wheels include it)",
        "left out: mkl (wheels include it)",
    )


@pytest.mark.parametrize(
    ("data", "where", "said"),
    [
        ({"dependencies": ["a", "gcc_linux-64"]}, "dependencies.1", "gcc_linux-64 is not a Python"),
        ({"dependencies": ["r-base=4"]}, "dependencies.0", "r-base is not a Python"),
        ({"dependencies": ["r-ggplot2"]}, "dependencies.0", "r-ggplot2 is not a Python"),
        ({"dependencies": ["a=1|2"]}, "dependencies.0", "alternatives"),
        ({"dependencies": ["a=>1"]}, "dependencies.0", "cannot be read"),
        ({"dependencies": ["a b c d"]}, "dependencies.0", "cannot be read"),
        ({"dependencies": ["%"]}, "dependencies.0", "is not a package"),
        ({"dependencies": [["a"]]}, "dependencies.0", "neither a package nor a pip section"),
        ({"dependencies": [{"pip": "a"}]}, "dependencies.0", "neither a package nor a pip"),
        ({"dependencies": "a"}, "dependencies", "must be a list"),
        ({"dependencies": [], "variables": ["a"]}, "variables", "names with values"),
        ({"dependencies": [], "variables": {"a=b": 1}}, "variables", "names with values"),
        ({"dependencies": [], "variables": {"a": None}}, "variables", "names with values"),
        ({}, "dependencies", "must be a list"),
        ({"dependencies": [], "dependancies": []}, "dependancies", "no key 'dependancies'"),
    ],
)
def test_what_is_refused(data: dict[str, object], where: str, said: str):
    with pytest.raises(SpecError, match=said) as caught:
        conda.read(data)
    assert [each.where for each in caught.value.problems] == [where]
    with pytest.raises(SpecError) as caught:
        conda.read(data, "environment.conda_file")
    assert caught.value.problems[0].where == f"environment.conda_file.{where}"


def test_everything_wrong_is_told_at_once():
    with pytest.raises(SpecError) as caught:
        conda.read({"dependencies": ["gcc", "nodejs"], "x": 1})
    assert len(caught.value.problems) == 3
