"""A job's file and its events as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from allranks.events import Kind
from allranks.ui.pages.details import EVENT_TEXTS, job_file, shown_events


def test_each_kind_of_event_has_words() -> None:
    assert {*EVENT_TEXTS} == {*Kind}
    assert len({*EVENT_TEXTS.values()}) == len(Kind)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        ({"pid": 5}, ""),
        ({"ranks": [0, 1, 2, 7]}, "ranks 0–2, 7"),
        ({"code": 0, "signal": None, "ended_at": 1.5, "behind_pipe": True}, "code 0; behind pipe"),
        ({"reason": "DONE", "message": "all is done", "tail": ["x"]}, "all is done; reason DONE"),
        ({"state": "up", "why": "", "reason": None}, "state up"),
        ({"status": "Failed", "error": {"message": "no"}}, "status Failed; no"),
        ({"ranks": "all", "error": "no", "why": "x"}, "x; ranks all; error no"),
        ({"host": "vm", "ports": [1, 2], "python": {"version": "3.11", "packages": None}},
         "host vm; ports 1, 2; python: version 3.11"),
    ],
)  # fmt: skip
def test_an_event_in_words(data: dict[str, Any], detail: str) -> None:
    event: Any = {
        "id": 7,
        "at": "2026-01-01T00:00:02.500000+00:00",
        "kind": "ended",
        "launch": 1,
        "attempt": 2,
        "node": 0,
        "rank": None,
        "data": data,
    }
    job: Any = {"created_at": "2026-01-01T00:00:00+00:00", "attempts": 2}
    (shown,) = shown_events([event], job)
    assert (shown.after, shown.place, shown.detail) == (2.5, "attempt 2, node 0", detail)
    others = [{**event, "node": node} for node in (3, 1, 2, 7)]
    ranks = [{**event, "rank": rank} for rank in (0, 1)]
    several = shown_events([event, *others, *ranks, *others], {**job, "attempts": 1})
    places = [one.place for one in several]
    assert places == ["nodes 0–3, 7", "node 0, ranks 0–1", "nodes 1–3, 7"]


def test_a_job_file_has_what_its_submitter_wrote() -> None:
    spec = {"name": "on", "command": "a\nb\n", "inputs": {"x": {"path": "1e3"}}, "tags": {}}
    own = {"azureml.git.branch": "main", "allranks.created_by": "ann"}
    text = job_file({**spec, "properties": own})
    assert yaml.safe_load(text) == spec
    assert "command: |\n  a\n  b\n" in text
    assert text.startswith(('name: "on"\n', "name: 'on'\n"))
    kept = yaml.safe_load(job_file({**spec, "properties": {**own, "mine": "1"}}))
    assert kept["properties"] == {"mine": "1"}
