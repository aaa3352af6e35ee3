"""What the load of deployments needs. Without a clock."""

from __future__ import annotations

from typing import NamedTuple

from allranks.core.endpoints.record import Deployment
from allranks.core.endpoints.scaling import Need, follow, needed


class _Load(NamedTuple):
    """``busy`` is what the router said at a time."""

    revision: int
    at: float
    busy: float
    needs: tuple[Need, ...]


class Scaler:
    """Remembers what the deployments needed. Of one thread."""

    def __init__(self) -> None:
        self._loads: dict[str, _Load] = {}

    def instances(self, row: Deployment, busy: float, is_ready: bool, now: float) -> int:
        """The replicas of a deployment from now on, of which one ``is_ready`` or none. ``busy`` is
        the router's count of the seconds of all requests."""
        instances = row.instances
        scale = None if row.is_deleted else row.scale
        if scale is None:
            self._loads.pop(row.key, None)
            return instances
        before = self._loads.get(row.key)
        if before is None or before.revision != row.revision:
            self._loads[row.key] = _Load(row.revision, now, busy, (Need(now, instances),))
            return instances
        if now - before.at < (scale.interval if instances else 0):
            return instances
        # A router that has started anew counts from 0.
        used = busy - before.busy if busy >= before.busy else busy
        need = needed(scale, used / max(now - before.at, 0.001))
        if not is_ready:  # the first replica may take longer than the delay
            need = max(need, instances)
        needs = follow(before.needs, Need(now, need), scale.delay)
        self._loads[row.key] = _Load(row.revision, now, busy, needs)
        return needs[0].replicas
