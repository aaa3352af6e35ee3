"""What ranks that failed in a collective have left, compared with what is known of the others."""

from __future__ import annotations

import json
from pathlib import Path

from allranks.agent.monitoring.desync import explain


def leave(folder: Path, rank: int, number: int) -> None:
    entry = {"group": "0", "number": number, "operation": "all_reduce", "sizes": [[8]]}
    entry |= {"types": ["Float"], "pending": True, "since": 1.0, "place": "train.py:7"}
    note = {"rank": rank, "groups": [["0", "", [0, 1, 2]]], "entries": [entry], "at": 2.0}
    (folder / f"collectives-{rank}.json").write_text(json.dumps(note))


def test_ranks_of_other_nodes_are_not_said_to_have_ended(tmp_path: Path):
    leave(tmp_path, 2, 11)
    assert explain(tmp_path, 2, False, {}, ended={2}) == ""


def test_a_rank_of_this_node_that_has_left_is_named(tmp_path: Path):
    for rank in (0, 2):
        leave(tmp_path, rank, 11)
    text = explain(tmp_path, 2, False, {}, ended={0, 1, 2})
    assert text.startswith("rank 1 ended without calling all_reduce #11 [8]")
    assert "ranks 0, 2 wait in it" in text
