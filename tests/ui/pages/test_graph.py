"""The places of a pipeline's steps."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allranks.ui.pages.graph import graph


def step(*after: str) -> dict[str, Any]:
    return {"after": list(after), "status": "Completed", "job": None, "reused": None}


def test_a_diamond() -> None:
    found = graph({"d": step("b", "c"), "b": step("a"), "c": step("a"), "a": step()})
    places = {box.name: (box.x, box.y) for box in found.boxes}
    assert places["a"][0] < places["b"][0] == places["c"][0] < places["d"][0]
    assert places["b"][1] != places["c"][1]
    assert len(found.curves) == 4


def test_no_steps() -> None:
    assert graph({}).boxes == []


@given(st.lists(st.sets(st.integers(0, 30)), max_size=30))
def test_each_is_to_the_right_of_what_it_needs(needs: list[set[int]]) -> None:
    steps = {
        str(number): step(*(str(each) for each in after if each < number))
        for number, after in enumerate(needs)
    }
    found = graph(dict(reversed(steps.items())))
    places = {box.name: (box.x, box.y) for box in found.boxes}
    assert len(set(places.values())) == len(steps)
    for name, each in steps.items():
        assert all(places[before][0] < places[name][0] for before in each["after"])
