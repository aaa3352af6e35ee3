"""The state of a deployment and of an endpoint, as people see it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from allranks.core.endpoints.patience import HOPELESS

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentState

# The states of deployments, the worst first.
_SEVERITY = ("Failed", "UpdateFailed", "Degraded", "Creating", "Updating", "Ready")


class ReplicaState(NamedTuple):
    """What is seen of a replica. Times in seconds since the epoch.

    ``late``: it may take no more time to become ready, or fails its probe; `decide` finds out.
    ``drains_since``: None while it gets requests.
    ``running``: requests that it has.
    ``why``: why it has ended, or is not ready.
    ``failures``: of its probe in a row. ``running_since``: of its job, None while it does not run.
    """

    job: str
    revision: int
    ready: bool = False
    ended: bool = False
    late: bool = False
    drains_since: float | None = None
    running: int = 0
    why: str = ""
    failures: int = 0
    running_since: float | None = None


def state(
    replicas: Sequence[ReplicaState], revision: int, instances: int, failures: int
) -> DeploymentState:
    ready = [replica for replica in replicas if replica.ready and replica.drains_since is None]
    new = sum(replica.revision == revision for replica in ready)
    if new >= instances and len(ready) == new:  # none of before is asked any more
        return "Ready"
    if failures >= HOPELESS and new == 0:
        return "UpdateFailed" if ready else "Failed"
    # Those of before still answer, or more of the new ones are on their way.
    if failures < HOPELESS and (len(ready) > new or (new and not failures)):
        return "Updating"
    return "Degraded" if new else "Creating"


def endpoint_state(states: Mapping[str, str], traffic: Mapping[str, int]) -> str:
    """The worst `DeploymentState` of the deployments that get requests; of all, while none does;
    `Empty` without deployments."""
    serving = [state for name, state in states.items() if traffic.get(name)]
    return min(serving or states.values(), key=_SEVERITY.index, default="Empty")
