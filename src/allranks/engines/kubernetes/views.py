"""What the engine keeps of a Job and of a pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.engines.kubernetes.manifest import GANG, HOLD_LIMIT, INDEX, KEY, QUEUE

Object = Mapping[str, Any]


class JobView(NamedTuple):
    """A Job. ``end``: the reason of its Failed condition, or ``Complete``. ``hold_limit``: see the
    option; None if neither it nor `autoscaling` is set. ``start``: when it was last resumed, by
    the cluster's clock."""

    name: str
    key: str
    nodes: int
    suspended: bool = False
    queue: str = ""
    end: str = ""
    message: str = ""
    deleted: bool = False
    hold_limit: float | None = None
    start: str = ""


class PodView(NamedTuple):
    """A pod. ``unscheduled``: the scheduler's message; ``refused``: it has no place for the pod
    and makes none by preemption. ``waiting``: reason and message of a container that cannot start.
    ``ended``: reason, message and exit code of the container that ended, init containers included.
    ``disruption``: the reason of its DisruptionTarget condition. ``node`` is its number in the
    gang. ``silent``: its node does not report any more."""

    name: str
    gang: str
    node: int
    phase: str
    host: str = ""
    unscheduled: str = ""
    waiting: tuple[str, str] = ("", "")
    ended: tuple[str, str, int] = ("", "", 0)
    reason: str = ""
    message: str = ""
    disruption: str = ""
    deleted: bool = False
    silent: bool = False
    started: bool = False
    refused: bool = False

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def job_view(job: Object) -> JobView:
    metadata, spec = job["metadata"], job["spec"]
    annotations = metadata.get("annotations") or {}
    conditions = _conditions(job)
    end, message = "", ""
    for kind in ("Failed", "FailureTarget", "Complete", "SuccessCriteriaMet"):
        if kind in conditions:
            end = "Complete" if kind[0] in "CS" else str(conditions[kind].get("reason") or kind)
            message = str(conditions[kind].get("message") or "")
            break
    return JobView(
        metadata["name"],
        str(annotations.get(KEY, "")),
        int(spec.get("completions") or 0),
        bool(spec.get("suspend")),
        str((metadata.get("labels") or {}).get(QUEUE, "")),
        end,
        message,
        "deletionTimestamp" in metadata,
        float(annotations[HOLD_LIMIT]) if HOLD_LIMIT in annotations else None,
        str((job.get("status") or {}).get("startTime") or ""),
    )


def pod_view(pod: Object) -> PodView:
    metadata, status = pod["metadata"], pod.get("status") or {}
    conditions = _conditions(pod)
    scheduled = _condition(pod, "PodScheduled")
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    states = [container.get("state") or {} for container in containers]
    waiting: Object = next((s["waiting"] for s in states if _stuck(s)), {})
    failed = (s["terminated"] for s in states if s.get("terminated", {}).get("exitCode"))
    ended: Object = next(failed, {})
    # The node's controller says so of all pods of a node that is silent; a kubelet sets both.
    ready = _condition(pod, "Ready")
    whole = _condition(pod, "ContainersReady")
    silent = ready.get("status") == "False" and whole.get("status") == "True"
    return PodView(
        metadata["name"],
        str((metadata.get("labels") or {}).get(GANG, "")),
        _number((metadata.get("annotations") or {}).get(INDEX)),
        str(status.get("phase") or "Pending"),
        str((pod.get("spec") or {}).get("nodeName") or ""),
        str(scheduled.get("message") or scheduled.get("reason") or "")
        if scheduled.get("status") == "False"
        else "",
        (str(waiting.get("reason") or ""), str(waiting.get("message") or "")),
        (
            str(ended.get("reason") or ""),
            str(ended.get("message") or ""),
            int(ended.get("exitCode") or 0),
        ),
        str(status.get("reason") or ""),
        str(status.get("message") or ""),
        str(conditions.get("DisruptionTarget", {}).get("reason") or ""),
        "deletionTimestamp" in metadata,
        silent and status.get("phase") == "Running",
        any("running" in (c.get("state") or {}) for c in status.get("containerStatuses") or ()),
        scheduled.get("reason") == "Unschedulable" and not status.get("nominatedNodeName"),
    )


def _stuck(state: Object) -> bool:
    reason = state.get("waiting", {}).get("reason")
    return bool(reason) and reason not in ("ContainerCreating", "PodInitializing")


def _conditions(resource: Object) -> dict[str, Object]:
    """The true conditions by type."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return {str(c["type"]): c for c in conditions if c.get("status") == "True"}


def _number(text: object) -> int:
    """A pod's number in its gang; -1 for none, as for what somebody else has written there."""
    try:
        return int(str(text))
    except ValueError:
        return -1


def _condition(resource: Object, kind: str) -> Object:
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})
