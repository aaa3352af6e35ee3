"""A look counts for a while, and then takes no memory."""

import pytest

from allranks.server.loop import live_views
from allranks.server.loop.live_views import LiveViews


def test_a_look_counts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    views = LiveViews()
    views.look("a")
    assert views.are_open("a")
    assert not views.are_open("b")
    monkeypatch.setattr(live_views, "LOOK", -1.0)
    views.look("a")
    assert not views.are_open("a")


def test_looks_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    views = LiveViews()
    monkeypatch.setattr(live_views, "LOOK", -1.0)
    for job in ("a", "b", "c"):
        views.look(job)
    assert not views._until
    monkeypatch.undo()
    for job in ("a", "b", "a"):
        views.look(job)
    assert [*views._until] == ["b", "a"]
