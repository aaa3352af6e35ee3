"""What uv prints when it fails, and what to do about it."""

import pytest

from allranks.agent.environments import uv_messages


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "error: Distribution not found at: file:///home/ann/code/lib-1-py3-none-any.whl",
            "the node has no such file",
        ),
        (
            "error: failed to create directory `/.cache/uv`: Permission denied (os error 13)",
            "make that path writable",
        ),
        ("error: Failed to fetch: `https://pypi.org/simple/x/`", "cannot reach the package index"),
        ("error: No space left on device (os error 28)", "free space"),
        ("error: something else", "see the output of uv in the.log"),
    ],
)
def test_a_failure_says_what_to_do(said: str, hint: str):
    error = uv_messages.failure([said], "the.log")
    assert error.message.startswith("cannot build the environment: ")
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("said", "rows", "replacement"),
    [
        (
            "Because scikit-learn==1.1.3 depends on joblib>=1.0.0 and you require joblib==0.14.0",
            ["scikit-learn==1.1.3", "joblib==0.14.0"],
            "joblib>=1.0.0",
        ),
        (
            "pandas==1.5.0 depends on\n      numpy{python_full_version >= '3.10'}>=1.21.0, we can",
            ["numpy==1.18.5; python_version < '4'"],
            "numpy>=1.21.0",
        ),
        (
            "requests==2.22.0 depends on one of: urllib3>=1.21.1,<1.25 urllib3>1.25,<1.26 and you",
            ["urllib3==1.26.9"],
            "urllib3<1.25,>=1.21.1",
        ),
        ("a==1 depends on one of: b>=1,<2 b>=3 and you require", ["b==3.1"], ""),
        ("a==1 depends on b>=2,<3 and you require b==2.5", ["b==2.5"], ""),
        ("a==1 depends on b>=2", ["b>=1"], ""),
        ("a==1 depends on b>=2", [], ""),
    ],
)
def test_a_pin_that_another_package_does_not_run_with(said: str, rows: list[str], replacement: str):
    found = uv_messages.disagreement(said.splitlines(), rows, rows)
    assert (found.replacement if found else "") == replacement
