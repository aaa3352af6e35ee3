"""What a person is told of a job that asks for what its compute does not have."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.engines.registry import KINDS
from allranks.server.submission.submit import notes


@pytest.mark.parametrize(
    ("engine", "options", "said"),
    [
        ("local", {}, []),
        ("slurm", {}, ["c treats a spot job without `spot_partition` like any other job"]),
        ("slurm", {"spot_qos": "low"}, []),
        ("ray", {}, ["c treats a spot job like any other job"]),
    ],
)
def test_where_spot_means_nothing_it_is_said(engine: str, options: dict[str, Any], said: list[str]):
    gang = Gang("j.1", 1, (), options=options, spot=True)
    plan = Plan(gang, Task("j", "e", "true"), Rules(), engine, compute="c")
    assert notes(plan, KINDS[engine]) == said
    assert notes(plan._replace(gang=gang._replace(spot=False)), KINDS[engine]) == []
