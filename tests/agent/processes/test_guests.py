"""The guests of a node, as it tells the server of them."""

from __future__ import annotations

from pathlib import Path

from allranks.agent.processes.guests import Guests
from allranks.agent.transport.identity import AgentIdentity
from allranks.api.agents import GuestOrder
from allranks.core.plan import Task

ORDER: GuestOrder = {"key": "j.1", "env": {}, "gpus": 0}


def test_a_node_that_lets_no_guest_in_says_so_once(tmp_path: Path):
    """Else it and the server would call each other without a pause."""
    guests = Guests(AgentIdentity("", "", "", 1, 0, tmp_path, "", 1))
    assert guests.report() == ""
    guests.reconcile([ORDER])
    assert guests.report() is None
    guests.open(tmp_path, Task("j", "e", "c"))
    assert guests.report() == ""
    guests.close(0.0)
    assert guests.report() == ""
    guests.reconcile([ORDER])
    assert guests.report() is None
