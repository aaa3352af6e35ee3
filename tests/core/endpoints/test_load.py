"""Replicas follow the load."""

from __future__ import annotations

from allranks.core.endpoints.load import Scaler
from allranks.core.endpoints.record import Deployment


def test_replicas_follow_the_load():
    settings = {"min_instances": "0", "max_instances": 3, "scale_down_delay": 10}
    spec = {"name": "d", "endpoint_name": "e", "command": "x", "scale_settings": settings}
    row, scaler = Deployment("e", "d", spec, {}, 1, 0.0, "me"), Scaler()
    busy = 0.0

    def after(seconds: float, load: float, is_ready: bool = True) -> int:
        nonlocal row, busy, now
        now, busy = now + seconds, busy + seconds * load
        row = row._replace(scaled=scaler.instances(row, busy, is_ready, now))
        return row.instances

    now = 1000.0
    assert after(0, 0) == 1
    assert after(20, 0, is_ready=False) == 1, "it has to show that it works"
    assert after(10, 0) == 0
    assert after(0.2, 0) == 0
    assert after(0.2, 0.5) == 1
    assert after(0.5, 9) == 1, "not before its interval"
    assert after(1, 9) == 3
    assert after(9, 0.1) == 3
    assert after(1, 0.1) == 1
    busy = 0.0  # a new router
    assert after(1, 2) == 3
    row = row._replace(revision=2, scaled=None)
    assert after(100, 0) == 1
