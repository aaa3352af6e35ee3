"""Which failures of a node's preparation may pass, and which never do."""

from __future__ import annotations

import errno
import json

import pytest

from allranks.agent.environments import uv_messages
from allranks.errors import AllranksError, NotFound, Passing, Unreachable, from_body, is_passing


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (OSError("a sentence"), False),
        (Passing("the store does not answer"), True),
        (Unreachable("nothing answers"), True),
        (NotFound("there is nothing at this address"), False),
        (AllranksError("anything else"), False),
    ],
)
def test_what_may_pass(error: Exception, passes: bool):
    assert is_passing(error) is passes
    if isinstance(error, AllranksError):
        assert is_passing(from_body(json.loads(json.dumps(error.body())))) is passes


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("error: Failed to fetch: `https://pypi.org/simple/torch/`", True),
        ("error: failed to write: No space left on device (os error 28)", True),
        ("error: Because x was not found in the package registry", False),
        ("error: your requirements are unsatisfiable", False),
    ],
)
def test_what_uv_says(said: str, passes: bool):
    assert is_passing(uv_messages.failure([said], "log")) is passes
