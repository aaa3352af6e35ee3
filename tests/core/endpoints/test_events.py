"""Events of endpoints, and what people read of them."""

from __future__ import annotations

from allranks.core.endpoints import events, fold
from allranks.core.endpoints.events import Event, Kind, sentence


def test_each_kind_has_an_effect_and_a_sentence():
    effects = {*fold._OF_ENDPOINT, *fold._OF_DEPLOYMENT}
    assert effects | {Kind.CREATED, Kind.DEPLOYED, Kind.ADOPTED} == {*Kind}
    assert {*events._SENTENCES} == {*Kind}


def test_a_change_says_what_and_who_gets_how_much():
    changes = {"traffic": {"blue": 90, "green": 10, "old": 0}, "tags": {"a": "b"}}
    event = Event(Kind.CHANGED, 0.0, by="ann", data={"changes": changes})
    assert sentence(event) == "traffic blue=90 green=10; changed: tags"
    none = Event(Kind.CHANGED, 0.0, by="ann", data={"changes": {"traffic": {}}})
    assert sentence(none) == "traffic none"
