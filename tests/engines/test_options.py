"""Options as data: what is given becomes what was declared, or is refused by name."""

import pytest

from allranks.engines.options import COMMON, Option, Type, check, connection, defaults
from allranks.engines.registry import KINDS
from allranks.errors import SpecError

DECLARED = (
    Option("conf", "where it is", connects=True),
    Option("partition", "which part"),
    Option("warning", "seconds", Type.NUMBER, default=60),
    Option("exclusive", "alone", Type.SWITCH),
    Option("modules", "to load", Type.LINES),
    Option("memory", "how much", Type.MEMORY),
    Option("token", "its file", Type.PATH),
    Option("part", "one of them", choices=("a", "b")),
    Option("patch", "a mapping", Type.MAPPING),
)


def test_values_become_what_was_declared():
    given = {"partition": 7, "warning": "30", "exclusive": "Yes", "modules": "cuda", "conf": "/x"}
    assert check(DECLARED, given, "") == {
        "partition": "7",
        "warning": 30,
        "exclusive": True,
        "modules": ["cuda"],
        "conf": "/x",
    }
    assert check(DECLARED, {"warning": 1.5, "modules": ["a", "b"]}, "") == {
        "warning": 1.5,
        "modules": ["a", "b"],
    }


@pytest.mark.parametrize("given", ["{a: {b: [1]}}", '{"a": {"b": [1]}}', {"a": {"b": [1]}}])
def test_a_mapping_is_itself_or_its_text(given):
    assert check(DECLARED, {"patch": given}, "") == {"patch": {"a": {"b": [1]}}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partitoin": "x"}, "unknown option 'partitoin'"),
        ({"warning": "soon"}, "'soon' is not a positive number"),
        ({"warning": True}, "True is not a positive number"),
        ({"warning": -1}, "-1 is not a positive number"),
        ({"memory": "4x"}, "'4x' is not an amount of memory"),
        ({"token": "here/tok"}, "'here/tok' is not an absolute path"),
        ({"part": "c"}, "'c' is not a or b"),
        ({"exclusive": "maybe"}, "'maybe' is not true or false"),
        ({"partition": "a\nb"}, "is not a single-line string"),
        ({"partition": ["a"]}, "is not a string"),
        ({"modules": [{"a": 1}]}, "is not a string"),
        ({"patch": "[1]"}, "'[1]' is not a mapping, such as {key: value}"),
        ({"patch": "{"}, "'{' is not a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(given, said):
    with pytest.raises(SpecError) as caught:
        check(DECLARED, given, "resources.properties.x")
    (problem,) = caught.value.problems
    assert said in problem.message
    assert problem.where == f"resources.properties.x.{next(iter(given))}"
    assert problem.hint


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(SpecError) as caught:
        check(DECLARED, {"a": 1, "warning": "x"}, "")
    assert len(caught.value.problems) == 2


def test_which_cluster_it_is_is_not_a_jobs_to_say():
    with pytest.raises(SpecError, match="unknown option 'conf'"):
        check(DECLARED, {"conf": "/y"}, "", of_job=True)
    assert connection(DECLARED, {"conf": "/x", "partition": "p"}) == {"conf": "/x"}
    assert defaults(DECLARED) == {"warning": 60}


def test_an_option_that_several_engines_have_is_of_one_type():
    """It is one flag of `compute create`."""
    types: dict[str, set[Type]] = {}
    for kind in KINDS.values():
        for option in (*COMMON, *kind.options):
            types.setdefault(option.name, set()).add(option.type)
    assert [name for name, of in types.items() if len(of) > 1] == []
    assert all(option.help for kind in KINDS.values() for option in kind.options)
