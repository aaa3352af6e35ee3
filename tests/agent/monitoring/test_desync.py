"""What ranks that failed in a collective have left, compared with what is known of the others."""

from __future__ import annotations

import json
from pathlib import Path

from allranks.agent.monitoring.desync import Disagreement, explain

CALLED = {"op": "all_reduce", "sequence": 11, "group": "the default group", "where": "train.py:7"}


def leave(folder: Path, rank: int, number: int) -> None:
    entry = {"group": "0", "number": number, "operation": "all_reduce", "sizes": [[8]]}
    entry |= {"types": ["Float"], "pending": True, "since": 1.0, "place": "train.py:7"}
    note = {"rank": rank, "groups": [["0", "", [0, 1, 2]]], "entries": [entry], "at": 2.0}
    (folder / f"collectives-{rank}.json").write_text(json.dumps(note))


def test_ranks_of_other_nodes_are_not_said_to_have_ended(tmp_path: Path):
    leave(tmp_path, 2, 11)
    assert explain(tmp_path, 2, None, {}, ended={2}) == Disagreement()


def test_a_rank_of_this_node_that_has_left_is_named(tmp_path: Path):
    for rank in (0, 2):
        leave(tmp_path, rank, 11)
    text, data = explain(tmp_path, 2, None, {}, ended={0, 1, 2})
    assert text.startswith("rank 1 has ended; ranks 0, 2 wait since ")
    assert text.endswith(" in all_reduce #11 [8] of the default group, train.py:7")
    # Nobody knows whether it called it.
    assert data == {**CALLED, "missing_ranks": [], "waiting_ranks": [0, 2]}


def test_a_rank_that_gloo_aborted_is_not_said_to_have_called_nothing(tmp_path: Path):
    """Of two ranks that reduced different shapes, one was aborted and left nothing."""
    leave(tmp_path, 0, 11)
    said = "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 36 vs 32. Bad"
    text, data = explain(tmp_path, 1, [said], {}, ended={0, 1})
    assert text == (
        "another rank sent 36 bytes into a collective where this one expected 32: their shapes, "
        "types or operations differ; rank 0 called all_reduce #11 [8] of the default group, "
        "train.py:7"
    )
    assert data == {**CALLED, "missing_ranks": [], "waiting_ranks": [0]}
    assert explain(tmp_path, 1, ["Aborted"], {}, ended={0, 1}) == Disagreement()


def test_a_note_may_be_anything(tmp_path: Path):
    leave(tmp_path, 2, 11)
    (tmp_path / "collectives-0.json").symlink_to("/proc/self/environ")
    (tmp_path / "collectives-1.json").write_text("[" * 100_000)
    assert explain(tmp_path, 2, None, {}, ended={2}) == Disagreement()
