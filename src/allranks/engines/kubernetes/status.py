"""From a Job and its pods to the status of a gang. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from allranks.core.amounts import counted
from allranks.engines.base import GangStatus
from allranks.engines.kubernetes.views import JobView, PodView
from allranks.statuses import GangState, Reason

# Why a pod was ended from outside: the reason of its DisruptionTarget condition.
DISRUPTIONS: Mapping[str, tuple[Reason, str]] = {
    "PreemptionByScheduler": (Reason.PREEMPTED, "a pod of higher priority took its place"),
    "EvictionByEvictionAPI": (Reason.PREEMPTED, "it was evicted, for example to drain its node"),
    "DeletionByTaintManager": (Reason.NODE_LOST, "its node got a taint that it does not tolerate"),
    "DeletionByPodGC": (Reason.NODE_LOST, "its node no longer exists"),
    "TerminationByKubelet": (Reason.PREEMPTED, "its node ended it"),
}
# Why a pod failed as a whole: the reason of its status.
ENDS: Mapping[str, tuple[Reason, str]] = {
    "Evicted": (Reason.PREEMPTED, "its node evicted it"),
    "Preempting": (Reason.PREEMPTED, "its node preempted it for a critical pod"),
    "Terminated": (Reason.NODE_LOST, "its node was shut down"),
    "NodeShutdown": (Reason.NODE_LOST, "its node was shut down"),
    "Shutdown": (Reason.NODE_LOST, "its node was shut down"),
    "NodeLost": (Reason.NODE_LOST, "its node does not answer"),
    "DeadlineExceeded": (Reason.TIME_LIMIT, "it reached its deadline"),
    "OutOfcpu": (Reason.NODE_LOST, "its node had no CPU left"),
    "OutOfmemory": (Reason.NODE_LOST, "its node had no memory left"),
    "OutOfpods": (Reason.NODE_LOST, "its node could not run another pod"),
    "NodeAffinity": (Reason.NODE_LOST, "its node no longer matches its labels"),
    "UnexpectedAdmissionError": (Reason.NODE_LOST, "its node rejected it"),
}
# Why a container ended. Used only if no agent has reported: an agent's report is more specific.
CONTAINERS: Mapping[str, tuple[Reason, str]] = {
    "OOMKilled": (Reason.OUT_OF_MEMORY, "a node ran out of memory"),
    "StartError": (Reason.SETUP_FAILED, "its command could not be started"),
    "ContainerCannotRun": (Reason.SETUP_FAILED, "its command could not be started"),
    "ContainerStatusUnknown": (Reason.NODE_LOST, "its node lost its container"),
    "Error": (Reason.SETUP_FAILED, "an agent failed"),
}
# What the last words of a container mean that ended before its agent could say anything, or that
# could not be started: a shell's, runc's (in CRI-O's messages with backslashes), crun's, kata's.
_NO_PYTHON = (
    "the image has no such Python for the agent: set `python`, or bring one by `agent_image`"
)
_MEANINGS = (
    (r"exec format error", "the image is for another architecture than that of the node"),
    (r"exec: (?:\S+: )?\S*python[\d.]*: not found", _NO_PYTHON),
    (
        r"""exec: \\*"\S*python[\d.]*\\*": (?:executable file not found|stat \S+: no such file)""",
        _NO_PYTHON,
    ),
    (r"executable file [`']\S*python[\d.]*[`'] not found", _NO_PYTHON),
    (r"the file \S*python[\d.]* was not found", _NO_PYTHON),
    (
        r"""(?:exec: \\*"|executable file [`']|the file )/bin/bash\\*["'` ]""",
        "the image has no bash, which starts the agent",
    ),
)
# How the Job controller begins to say that a pod may not be.
_REFUSED = re.compile(r'^Error creating: pods "[^"]+" is forbidden: ')
_DEADLINE = "DeadlineExceeded"
# What no waiting mends: the image or the pod's configuration has to be changed.
_WAITS = {
    "ErrImageNeverPull": "the image is not on the node",
    "InvalidImageName": "the image has no valid name",
}


def status(
    job: JobView | None,
    pods: Sequence[PodView],
    known: bool = False,
    event: str = "",
    removed: Sequence[PodView] = (),
) -> GangStatus:
    """The status of a gang. ``job`` is None if there is none: then ``known`` says whether it was
    seen before. ``event`` is a warning of the cluster about the Job while pods are missing, what
    its autoscaler said while they have no nodes, or why a suspended gang has released its nodes.
    ``removed``: pods that were deleted while they lived, as they were seen last, though the Job
    was not.
    """
    event = _REFUSED.sub("pods are refused: ", event)  # without a name that changes at each try
    living = [pod for pod in pods if not pod.over]
    lost = tuple(sorted({pod.node for pod in pods if _is_lost(pod)}))
    if job is None or job.deleted:
        if any(not pod.silent for pod in living):
            return GangStatus(GangState.UP, "Kubernetes: its pods are being deleted", lost)
        reason, why = _why(pods)
        if known or job is not None:
            reason = reason or Reason.CANCELED
            why = why or "it was deleted in the cluster, not by allranks"
        return GangStatus(GangState.GONE, _say(why or "it has no such job"), reason=reason)
    if job.end and not living:
        reason, why = _why(pods, removed)
        if job.end == _DEADLINE:
            reason, why = Reason.TIME_LIMIT, "it reached its deadline"
        if job.end == "Complete" and not removed:
            reason, why = None, "its agents have ended"
        return GangStatus(GangState.GONE, _say(why or job.message or job.end), reason=reason)
    placed = {pod.node for pod in pods if pod.started or pod.over}
    if len(placed) >= job.nodes:
        if all(pod.over or pod.silent for pod in pods):
            reason, why = _why(pods, removed)
            return GangStatus(GangState.GONE, _say(why or "its agents have ended"), reason=reason)
        return GangStatus(GangState.UP, "", lost)
    return _waiting(job, living, event)


def _waiting(job: JobView, living: Sequence[PodView], event: str) -> GangStatus:
    if job.suspended:
        why = f"waits in the queue {job.queue}" if job.queue else "waits for free nodes"
        if event:
            why = f"holds no nodes until it tries again: {event}"
        return GangStatus(GangState.QUEUED, _say(why))
    missing = [pod for pod in living if not pod.host]
    if len(living) < job.nodes or missing:
        message = next((pod.unscheduled for pod in missing if pod.unscheduled), "")
        if len(living) < job.nodes:
            # Without the name, which is a new one each time the controller tries.
            message = event or message
        elif event:
            message = f"{message.rstrip('.')}; the autoscaler: {event}" if message else event
        return GangStatus(GangState.QUEUED, message and _say(message))
    for pod in living:
        if pod.waiting[0]:
            reason, message = pod.waiting
            text = f"{reason}: {message or _WAITS.get(reason, '')}".rstrip(": ")
            text = f"{text[:400]}{_meaning(message)}"
            return GangStatus(GangState.PROVISIONING, _say(f"{text} (on {pod.host})"))
    starting = sum(not pod.started for pod in living)
    return GangStatus(GangState.PROVISIONING, _say(f"{counted(starting, 'pod')} starting"))


def _is_lost(pod: PodView) -> bool:
    return pod.over or pod.silent


def _why(pods: Sequence[PodView], removed: Sequence[PodView] = ()) -> tuple[Reason | None, str]:
    """Why a gang's pods ended: what came from outside counts before what agents did."""
    for pod in (*pods, *removed):
        if pod.silent:
            return Reason.NODE_LOST, f"the node {pod.host} does not answer"
        if cause := DISRUPTIONS.get(pod.disruption):
            return cause[0], _of(pod, cause[1])
        if pod.phase == "Failed" and (cause := ENDS.get(pod.reason)):
            return cause[0], _of(pod, cause[1])
    if removed:
        # Their agents ended by themselves, so they have said why; else these nodes are lost.
        explained = any(pod.phase == "Succeeded" for pod in removed)
        message = f"its pod {removed[0].name} was deleted, by somebody or by the cluster"
        return Reason.PREEMPTED if explained else None, _of(removed[0], message)
    for pod in pods:
        reason, _, code = pod.ended
        if pod.phase == "Failed":
            cause = CONTAINERS.get(reason) or CONTAINERS["Error"]
            text = f"{cause[1]} (exit code {code})" if code else cause[1]
            return cause[0], _of(pod, text)
    return None, ""


def _of(pod: PodView, text: str) -> str:
    last = [line.strip() for line in (pod.ended[1] or pod.message).splitlines() if line.strip()]
    detail = f": {last[-1][:300]}{_meaning(last[-1])}" if last else ""
    where = f" on {pod.host}" if pod.host else ""
    return f"node {pod.node}{where}: {text}{detail}"


def _meaning(words: str) -> str:
    """What a container's last words mean, in brackets; empty if they speak for themselves."""
    meanings = (meaning for pattern, meaning in _MEANINGS if re.search(pattern, words))
    return next((f" ({meaning})" for meaning in meanings), "")


def _say(why: str) -> str:
    return f"Kubernetes: {why}" if why else ""
