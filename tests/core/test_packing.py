"""Values as JSON and back, between neighbouring versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import pytest

from allranks.core.packing import pack, unpack
from allranks.core.plan import Gang, InputTask, Interpreter, Place, Plan, Rules, Task


class Colour(StrEnum):
    RED = "red"


class Inner(NamedTuple):
    number: int
    words: tuple[str, ...] = ()


class Outer(NamedTuple):
    colour: Colour
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    pair: tuple[int, int] | None = None
    numbers: frozenset[int] = frozenset()
    by_node: Mapping[int, Inner] = {}
    by_name: Mapping[str, Inner] = {}
    either: int | str | None = None


FULL = Outer(
    Colour.RED,
    Inner(1, ("a",)),
    (Inner(2),),
    (1, 2),
    frozenset({1}),
    {0: Inner(3)},
    {"x": Inner(4)},
)


def through_json(value: object) -> object:
    return json.loads(json.dumps(pack(value), default=sorted))


@pytest.mark.parametrize("value", [FULL, Outer(Colour.RED), Outer(Colour.RED, either="x")])
def test_what_was_packed_comes_back(value: Outer):
    back = unpack(Outer, through_json(value))
    assert back == value
    assert type(back.colour) is Colour


def test_a_plan_comes_back():
    place = Place("10.0.0.1", "n1", (1, 2), python=Interpreter("/p", "3.11"))
    plan = Plan(
        Gang("k", 2, ("a", "b"), fixed_ports=(7,)),
        Task("j", "e", "c", inputs=(InputTask("x", text="1"),), warm=("torch",)),
        Rules(budgets={"user": 2}),
        "local",
        notes=("n",),
    )
    for value in (place, plan):
        assert unpack(type(value), through_json(value)) == value


def test_a_neighbouring_version_has_other_fields():
    data = {"colour": "red", "several": [{"number": 1, "to_come": []}], "to_come": {"x": 1}}
    assert unpack(Outer, data) == Outer(Colour.RED, several=(Inner(1),))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"colour": "blue"},
        [],
        None,
        {"colour": "red", "inner": 1},
        {"colour": "red", "inner": []},
        {"colour": "red", "inner": {"number": 1, "words": "text"}},
    ],
)
def test_what_is_no_such_value(data: object):
    with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
        unpack(Outer, data)
