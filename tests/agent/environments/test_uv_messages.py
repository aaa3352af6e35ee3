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
