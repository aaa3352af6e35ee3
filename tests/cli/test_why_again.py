"""What `run` says of an attempt that failed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from allranks.cli.job.follow_or_detach import FOLDER, _notes, _why_ended


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        (["n3"], "node 0 (n3) was lost"),
        (["n3", "n4"], "node 0 (n3) was lost"),
        ([os.uname().nodename], "node 0 was lost"),
    ],
)
def test_a_lost_node_is_named_by_its_host_unless_that_is_this_one(hosts: list[str], why: str):
    ready: list[Any] = [
        {"kind": "ready", "attempt": 1, "node": node, "data": {"host": host}}
        for node, host in enumerate(hosts)
    ]
    lost: Any = {"kind": "lost", "attempt": 1, "node": 0, "data": {"why": "its agent is dead"}}
    assert _why_ended([*ready, lost], 1) == why


def test_what_a_restart_went_on_with_is_said_however_many_attempts_it_had():
    begins = (
        "attempt {} continues with 1 file of the working folder, newest own; changed by several "
    )
    note = begins + "nodes, so each keeps its own: own"
    events: list[Any] = [
        {
            "attempt": attempt,
            "node": node,
            "data": {"about": FOLDER, "message": note.format(attempt)},
        }
        for attempt in (1, 2)
        for node in (0, 1)
    ]
    for attempts in (1, 2):
        job: Any = {"name": "j-r2", "attempts": attempts, "spec": {}}
        assert _notes(job, events[: 2 * attempts]) == [note.format(1)]
