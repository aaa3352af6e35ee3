"""What a failed rank's last lines say."""

import pytest

from allranks.core.diagnosis import rank_failure
from allranks.statuses import Reason

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
    assert rank_failure.port_taken(["before", line, "after"], [7000, 29500]) == 29500


def test_a_port_of_the_users_is_theirs():
    assert rank_failure.port_taken([TORCH], [2950, 9500]) is None
    assert (
        rank_failure.port_taken(["port 29500 is fine", "Address already in use"], [29500]) is None
    )


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ([], ""),
        (["one", "two"], "two"),
        (["ValueError: boo", "[cc:15] Failed to push error to driver"], "ValueError: boo"),
        (["[rank0]: RuntimeError: peer", "GLHF"], "[rank0]: RuntimeError: peer"),
        (["RuntimeError: two", "lines"], "RuntimeError: two"),
        (["a.b.SomeError: 1", "During handling:", "KeyboardInterrupt", "x"], "x"),
        (["ModuleNotFoundError: No module named 'apex'", "train", "bad lr"], "bad lr"),
        (["KeyError: 'a'", "exit code: 1"], "KeyError: 'a'"),
        (["the table", "=========="], "the table"),
        (["\x1b[1;31mValueError\x1b[0m: no", "\x1b[0m"], "ValueError: no"),
        (
            [
                *("Traceback (most recent call last):", '  File "a.py", line 1, in <module>'),
                *("    x()", "ValueError: parse failed:", "KeyError: 'x'"),
            ],
            "ValueError: parse failed:",
        ),
        (
            ["  | ExceptionGroup: two (2 sub-exceptions)", "    | TypeError: no", "    +------"],
            "TypeError: no",
        ),
        (
            ['  File "/c/a.py", line 3', "    x = (", "SyntaxError: '(' was never closed"],
            "/c/a.py:3: SyntaxError: '(' was never closed",
        ),
        (["SyntaxError: where?"], "SyntaxError: where?"),
    ],
)
def test_the_line_that_says_most(tail: list[str], said: str):
    assert rank_failure.error_line(tail, 1) == said


def test_a_code_of_the_programs_own_comes_right_after_its_exception():
    assert rank_failure.error_line(["RuntimeError: no", "giving up"], 3) == "giving up"
    assert rank_failure.error_line(["giving up", "RuntimeError: no"], 3) == "RuntimeError: no"


_STOPPED = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "Stop: now"]


@pytest.mark.parametrize(
    ("tail", "end"),
    [
        (["hi"], "; its last line: hi"),
        (["hi", "bash: no: command not found"], ": bash: no: command not found"),
        (_STOPPED, ": Stop: now"),
        ([], ""),
    ],
)
def test_a_last_line_that_is_no_error_is_named_as_that(tail: list[str], end: str):
    assert rank_failure.last_words(tail, 3) == end


def test_who_is_killed_while_the_kernel_kills_for_memory_is_killed_for_that():
    assert rank_failure.reason("SIGKILL", {"oom_kills": 1}) is Reason.OUT_OF_MEMORY
    assert rank_failure.reason("SIGKILL", {"oom_kills": 0}) is Reason.RANK_KILLED
    assert rank_failure.reason("SIGKILL", {}) is Reason.RANK_KILLED
    assert rank_failure.reason("SIGSEGV", {"oom_kills": 1}) is Reason.RANK_KILLED
    assert rank_failure.reason(None, {"oom_kills": 1}) is Reason.RANK_EXITED


def test_an_error_with_a_hint_is_the_error():
    tail = ["loading", "error: score.py was not found", "", "hint: its path starts at `code`"]
    assert rank_failure.error_line(tail, 1) == "error: score.py was not found"
    assert rank_failure.error_line(["hint: look there"], 1) == "hint: look there"
