"""How many replicas each deployment shall have, and how long one may start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allranks.core.scaling import Need, Scale, follow, needed

if TYPE_CHECKING:
    from allranks.spec.endpoint import Deployment
    from allranks.store.endpoints import DeploymentRow


def deployment_of(row: DeploymentRow) -> Deployment:
    """The deployment of a row: in the file numbers may be text."""
    from allranks.spec.endpoint import parse_deployment  # lazy: most homes have no endpoints

    return parse_deployment(row.spec)


def scale_of(row: DeploymentRow) -> Scale | None:
    """How it follows its load; None: it does not."""
    if not row.spec.get("scale_settings"):
        return None
    made = deployment_of(row)
    settings = made.scale_settings
    if settings is None or settings.type == "default":
        return None
    turns = made.request_settings.max_concurrent_requests_per_instance
    load = turns * settings.target_utilization_percentage / 100
    most = settings.max_instances or made.instance_count
    own = (settings.scale_down_delay, settings.polling_interval)
    return Scale(settings.min_instances, most, load, *own)


def instances_of(row: DeploymentRow) -> int:
    count = deployment_of(row).instance_count
    if (scale := scale_of(row)) is None:
        return count
    replicas = count if row.scaled is None else row.scaled
    return min(scale.most, max(scale.least, replicas))


def ready_within(row: DeploymentRow) -> float:
    """Seconds from a replica's start until it must be ready."""
    probe = deployment_of(row).readiness_probe
    return float(probe.initial_delay + probe.period * probe.failure_threshold)


class _Load(NamedTuple):
    """``busy`` is what the router told at a time."""

    revision: int
    at: float
    busy: float
    needs: tuple[Need, ...]


class Scaler:
    """Remembers what the deployments needed. Of one thread."""

    def __init__(self) -> None:
        self._loads: dict[str, _Load] = {}

    def instances(self, row: DeploymentRow, busy: float, is_ready: bool, now: float) -> int:
        """The replicas of a deployment from now on, of which one ``is_ready`` or none. ``busy`` is
        the router's count of the seconds of all requests."""
        instances = instances_of(row)
        scale = None if row.is_deleted else scale_of(row)
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
        spent = busy - before.busy if busy >= before.busy else busy
        need = needed(scale, spent / max(now - before.at, 0.001))
        if not is_ready:  # the first replica may take longer than the delay
            need = max(need, instances)
        needs = follow(before.needs, Need(now, need), scale.delay)
        self._loads[row.key] = _Load(row.revision, now, busy, needs)
        return needs[0].replicas
