"""What the pages of a job of many nodes show at first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.api import routes
from allranks.errors import Conflict
from allranks.ui import render
from allranks.ui.pages.job import stacks
from allranks.ui.pages.rank_grid import Cell, Node, first_nodes


def _node(number: int, state: str = "RUNNING", *, failed: bool = False, ranks: int = 8) -> Node:
    cells = [Cell(number * ranks + n, state, None, failed and n == 3) for n in range(ranks)]
    return Node(number, state, "", "", None, cells)


@pytest.mark.parametrize(("ranks", "shown"), [(8, 16), (1, 53), (200, 1)])
def test_what_differs_is_among_thefirst_nodes(ranks: int, shown: int) -> None:
    nodes = [_node(number, ranks=ranks) for number in range(64)]
    assert [node.number for node in first_nodes(nodes)] == [*range(shown)]
    nodes[40] = _node(40, "LOST", ranks=ranks)
    nodes[50] = _node(50, failed=True, ranks=ranks)
    numbers = [node.number for node in first_nodes(nodes)]
    assert 50 in numbers
    assert (40 in numbers) == (shown > 1)
    assert numbers == sorted(numbers)
    assert len(numbers) == shown


def test_few_are_all_shown() -> None:
    nodes = [_node(number) for number in range(3)]
    assert first_nodes(nodes) == nodes
    assert first_nodes([]) == []


def test_a_profile_that_is_too_large_does_not_take_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {"name": "j", "ended_at": None, "error": None}

    async def get(route: routes.Route[Any], _: str) -> Any:
        if route == routes.show_profile:
            raise Conflict("the newest profile of j is too large", hint="download it")
        return job

    monkeypatch.setattr(render, "page", lambda request, template, **values: values)
    session = SimpleNamespace(get=get)
    request: Any = SimpleNamespace(
        state=SimpleNamespace(session=session), path_params={"name": "j"}, method="GET"
    )
    values: Any = asyncio.run(stacks(request))
    assert "too large: download it" in values["no_profile"]
    assert values["profile"] is None
