"""Where the problems of a part are: below a key of its whole, in a file."""

from __future__ import annotations

import pytest

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import below, in_file

LINES = {"create_job": 3, "create_job.limits": 5}


def test_keys_of_a_part_become_keys_of_the_whole() -> None:
    with pytest.raises(SpecError) as caught, in_file("s.yml", LINES), below("create_job"):
        raise SpecError([Problem("empty"), Problem("too long", "limits.timeout")])
    places = [(problem.where, problem.line) for problem in caught.value.problems]
    assert places == [("create_job", 3), ("create_job.limits.timeout", 5)]
    assert str(caught.value).startswith("s.yml:3: create_job: empty\n")


def test_a_problem_of_another_file_stays_there() -> None:
    with pytest.raises(SpecError) as caught, in_file("s.yml", LINES):
        raise SpecError(Problem("empty", "create_job", 9), file="job.yml")
    assert (caught.value.file, caught.value.line) == ("job.yml", 9)
