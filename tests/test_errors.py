"""What a person sees of an error that nobody caught."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback

import pytest

from allranks.errors import AllranksError, NotFound, Problem, SpecError, UsageError


def last_lines(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def test_a_traceback_ends_with_the_hint() -> None:
    error = NotFound("there is no job named 'x'", hint="list jobs: allranks job list")
    assert last_lines(error)[-2:] == [
        "allranks.errors.NotFound: there is no job named 'x'",
        "hint: list jobs: allranks job list",
    ]
    assert str(error) == "there is no job named 'x'"


def test_a_hint_that_changes_is_shown_as_it_is_now() -> None:
    error = UsageError("no", hint="first")
    error.hint = "second"
    assert last_lines(error)[-1] == "hint: second"
    error.hint = None
    assert last_lines(error)[-1] == "allranks.errors.UsageError: no"


def test_notes_of_others_stay() -> None:
    error = UsageError("no", hint="mend it")
    error.add_note("seen at noon")
    assert last_lines(error)[-2:] == ["hint: mend it", "seen at noon"]


def test_each_problem_shows_its_hint() -> None:
    problems = [Problem("is no number", "inputs.lr", hint="a number"), Problem("is wrong", "name")]
    assert last_lines(SpecError(problems))[-3:] == [
        "allranks.errors.SpecError: inputs.lr: is no number",
        "name: is wrong",
        "hint: inputs.lr: a number",
    ]
    assert last_lines(SpecError(problems[0]))[-1] == "hint: a number"


@pytest.mark.parametrize("again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_keeps_its_hint(again: object) -> None:
    for error in (
        UsageError("no", where="here", hint="mend it"),
        SpecError([Problem("no", hint="mend it"), Problem("nor this", hint="mend that")]),
    ):
        other = again(error)  # type: ignore[operator]
        assert isinstance(other, AllranksError)
        assert (str(other), other.hint, other.__notes__) == (
            str(error),
            error.hint,
            error.__notes__,
        )


def test_a_program_shows_the_hint_and_the_command_line_shows_it_once() -> None:
    program = "from allranks import command; command(command='x', resorces={})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "hint: did you mean `resources`?"
    program = "import sys; from allranks.cli.main import main; sys.exit(main(['job', 'lst']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.count("hint:") == 1
