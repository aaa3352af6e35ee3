"""What a failed rank's last lines say."""

import pytest

from allranks.plan import causes

TORCH = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
    "already in use"
)
TENSORFLOW = (
    "E0000 chttp2_server.cc:1045] UNKNOWN:No address added out of total 1 resolved for "
    "'[::]:29500' {children:[UNKNOWN:Unable to configure socket {fd:30, children:[UNKNOWN:Address "
    "already in use {errno:98}]}]}"
)


@pytest.mark.parametrize("line", [TORCH, TENSORFLOW])
def test_a_port_of_ours_that_is_taken_is_seen(line: str):
    assert causes.port_taken(["before", line, "after"], [7000, 29500]) == 29500


def test_a_port_of_the_users_is_theirs():
    assert causes.port_taken([TORCH], [2950, 9500]) is None
    assert causes.port_taken(["port 29500 is fine", "Address already in use"], [29500]) is None


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ([], ""),
        (["one", "two"], "two"),
        (["ValueError: boo", "[cc:15] Failed to push error to driver"], "ValueError: boo"),
        (["[rank0]: RuntimeError: peer", "GLHF"], "[rank0]: RuntimeError: peer"),
        (["a.b.SomeError: 1", "During handling:", "KeyboardInterrupt", "x"], "KeyboardInterrupt"),
        (
            ['  File "/c/a.py", line 3', "    x = (", "SyntaxError: '(' was never closed"],
            "/c/a.py:3: SyntaxError: '(' was never closed",
        ),
        (["SyntaxError: where?"], "SyntaxError: where?"),
    ],
)
def test_the_line_that_says_most(tail: list[str], said: str):
    assert causes.telling(tail) == said


def test_hints():
    missing = ["Traceback", "ModuleNotFoundError: No module named 'torch.nn'"]
    assert "`torch.nn` is not installed" in causes.hint(missing)
    said = ["RuntimeError: Distributed package doesn't have MPI built in. MPI is only included if"]
    assert causes.hint(said).startswith("this PyTorch was built without MPI")
    assert "not on the PATH" in causes.hint(["/bin/bash: line 1: nope: command not found"])
    assert causes.hint(["python: can't open file '/x/train.py': [Errno 2]"]).startswith(
        "`/x/train.py` is not in the job's code"
    )
    assert causes.hint(["ValueError: no"]) == causes.hint([]) == ""
