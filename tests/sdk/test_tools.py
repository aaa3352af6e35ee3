"""What a submission takes along for nodes that may have to make an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allranks.sdk.submit.prepare import prepare


@pytest.mark.parametrize(
    ("more", "taken"),
    [({}, False), ({"mode": "stream"}, True), ({"unpack": True}, True), ({"sharded": True}, True)],
)
def test_tools_travel_where_a_mover_is_needed(
    tmp_path: Path, more: dict[str, Any], taken: bool
) -> None:
    """Also for data of this disk: a node's Python may have nothing that opens stores."""
    spec = {"command": "x", "inputs": {"d": {"path": str(tmp_path), **more}}}
    submission, _ = prepare(spec, tmp_path)
    assert ("tools" in submission) is taken
