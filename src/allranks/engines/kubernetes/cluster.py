"""Questions about the cluster: its version, our rights, its nodes, its warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from allranks.core.amounts import counted
from allranks.core.plan import Gang
from allranks.engines.base import Host
from allranks.engines.kubernetes import manifest, options
from allranks.engines.kubernetes import quota as quotas
from allranks.engines.kubernetes.api import Api, Object
from allranks.engines.kubernetes.quantities import quantity
from allranks.errors import AllranksError, Problem, Refused

# The first version where `backoffLimitPerIndex` is on by default.
OLDEST = (1, 29)
# What the engine does in its namespace: kind and verbs. `allranks compute render` prints the role.
RIGHTS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("batch", "jobs"): ("create", "get", "list", "watch", "patch", "delete"),
    ("", "pods"): ("list", "watch", "delete"),
    ("", "secrets"): ("create",),
    ("", "services"): ("create",),
    ("", "events"): ("list",),
}
# What it does without: a right, where it is granted (empty: nowhere), and what it buys.
OPTIONAL: Sequence[tuple[str, str, str]] = (
    (
        "list the quotas of the namespace",
        "in the Role",
        "a job that a quota can never hold is refused when it is submitted, not at its first try",
    ),
    (
        "list nodes",
        "in the ClusterRole",
        "`compute show` lists hosts, a job that never fits is refused, and a machine that dies "
        "while its pod starts is noticed",
    ),
    (
        "get the ConfigMap cluster-autoscaler-status in kube-system",
        "",
        "a job may be larger than the cluster is now, and hold nodes while others are added, "
        "without the option `autoscaling`",
    ),
    ("list the pods of all namespaces", "", "`compute show` lists what is free on the hosts"),
)
# Reasons of an autoscaler's events about pods: of the cluster autoscaler, of Karpenter.
AUTOSCALERS = {"TriggeredScaleUp", "NotTriggerScaleUp", "Nominated", "FailedScheduling"}
# Events that no question is about, and that are most of a namespace's: the scheduler's words, which
# are also in the pods' status, among them.
_UNWANTED = (
    ("source", "kubelet"),
    ("source", "default-scheduler"),
    ("reason", "SuccessfulCreate"),
    ("reason", "Completed"),
)
# The length of a time with its seconds: 2026-01-01T00:00:00.
TO_SECONDS = 19
# Resources that have words of their own.
_OWN = ("cpu", "memory")


def check_version(api: Api) -> None:
    """Raise Refused if the cluster is too old."""
    version = api.get("/version")
    numbers = [re.sub(r"\D", "", str(version.get(name) or "")) for name in ("major", "minor")]
    if not all(numbers):
        raise Refused("the server is not a Kubernetes API server", hint="check the kubeconfig")
    if tuple(map(int, numbers)) < OLDEST:
        hint = f"use {'.'.join(map(str, OLDEST))} or newer, where a node of a Job may end alone"
        raise Refused(f"Kubernetes {'.'.join(numbers)} is too old", hint=hint)


def check_rights(api: Api) -> None:
    """Raise Refused if a right is missing in the namespace."""
    missing = []
    for (group, kind), verbs in RIGHTS.items():
        for verb in verbs:
            attributes = {"namespace": api.namespace, "verb": verb, "group": group}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {**attributes, "resource": kind}},
            }
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            answer = api.good(api.request("POST", path, review), "check the rights")
            if not answer.body["status"].get("allowed"):
                missing.append(f"{verb} {kind}")
    if missing:
        raise Refused(
            f"in the namespace {api.namespace} these rights are missing: {', '.join(missing)}",
            hint="`allranks compute render kubernetes --namespace "
            f"{api.namespace}` prints the role that an administrator applies; or use another "
            "namespace",
        )


class Warned(NamedTuple):
    """The newest warning about an object. ``at`` is by the cluster's clock, in seconds."""

    at: str
    message: str


def warnings(api: Api) -> dict[str, Warned]:
    """The newest warning about each Job, such as a quota in the way; and what an autoscaler said
    last about each pod. By the object's name."""
    selector = ",".join(f"{field}!={value}" for field, value in _UNWANTED)
    newest: dict[str, Warned] = {}
    for event in api.get(api.path("events"), fieldSelector=selector)["items"]:
        about = event["involvedObject"]
        name = about["name"]
        if not (
            (about["kind"], event.get("type")) == ("Job", "Warning")
            or (about["kind"] == "Pod" and event.get("reason") in AUTOSCALERS)
        ):
            continue
        at = str(event.get("lastTimestamp") or event.get("eventTime") or "")[:TO_SECONDS]
        if at >= newest.get(name, ("",))[0]:
            newest[name] = Warned(at, str(event.get("message") or ""))
    return newest


def hosts(api: Api, settings: Mapping[str, Any]) -> list[Host]:
    """The nodes that the options select; what is free is unknown unless all pods may be listed.
    Empty without the right to list nodes: a user of one namespace often has not."""
    answer = api.request("GET", "/api/v1/nodes")
    if answer.status == 403:
        return []
    nodes = api.good(answer, "list the nodes").body["items"]
    selector = options.pairs("node_selector", settings.get("node_selector"))
    gpus = str(settings.get("gpu_resource") or options.GPUS)
    used = _used(api, gpus)
    return [_host(node, gpus, used) for node in nodes if _selects(selector, node)]


def down(api: Api, names: Set[str]) -> frozenset[str]:
    """Return those of the nodes that the cluster has not heard of for a while, or no longer has;
    empty if it does not list its nodes now, or not for us."""
    one = {"fieldSelector": f"metadata.name={next(iter(names))}"} if len(names) == 1 else {}
    try:
        nodes = api.get("/api/v1/nodes", **one)["items"]
    except AllranksError:
        return frozenset()
    heard = {node["metadata"]["name"] for node in nodes if _ready(node) != "Unknown"}
    return frozenset(names - heard)


def _ready(node: Object) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


def quota_excess(api: Api, job: Object) -> Problem | None:
    """Explain why a quota of the namespace can never hold the Job's pods; None if all can, or
    without the right to list them."""
    answer = api.request("GET", api.path("resourcequotas"))
    if answer.status == 403:
        return None
    pod, nodes = job["spec"]["template"]["spec"], job["spec"]["completions"]
    for quota in api.good(answer, "list the quotas").body["items"]:
        if excess := quotas.excess(quota, pod, nodes):
            hint = "request fewer nodes, or less per node; `kubectl describe quota` shows it"
            return Problem(excess, "resources", hint=hint)
    return None


def shortage(api: Api, gang: Gang) -> Problem | None:
    """Explain why the cluster can never have that many pods at once; None if it may."""
    if gang.options.get("autoscaling"):
        return None
    answer = api.request("GET", "/api/v1/nodes")
    if answer.status == 403:
        return None
    nodes = api.good(answer, "list the nodes").body["items"]
    selector = options.pairs("node_selector", gang.options.get("node_selector"))
    needed = {name: quantity(amount) for name, amount in manifest.requests(gang).items()}
    selected = [node for node in nodes if _selects(selector, node)]
    room = sum(_room(node, needed) for node in selected)
    if room >= gang.nodes or may_grow(api, gang.options.get("autoscaling")):
        return None
    grows = "if the cluster adds nodes on demand: allranks compute update NAME --autoscaling"
    if selector and not selected:
        hint = f"choose labels that `kubectl get nodes --show-labels` shows; {grows}"
        return Problem(_without(selector), "node_selector", hint=hint)
    amounts = _listed([*_amounts(gang), *([_labels(selector)] if selector else [])])
    message = f"it needs {counted(gang.nodes, 'node')} with {amounts}"
    return Problem(
        f"{message}{' each' if gang.nodes > 1 else ''}, {room} available",
        "resources",
        hint="request fewer nodes, or less per node; `cpus` defaults to the number of processes "
        f"per node; {grows}",
    )


def unmatched(api: Api, settings: Mapping[str, Any]) -> str:
    """Say that no node has the labels that the options select; empty if one has, or without the
    right to list nodes."""
    answer = api.request("GET", "/api/v1/nodes")
    selector = options.pairs("node_selector", settings.get("node_selector"))
    if answer.status >= 400 or any(_selects(selector, node) for node in answer.body["items"]):
        return ""
    return _without(selector) if selector else ""


def _without(selector: Mapping[str, str]) -> str:
    return f"no node of it has {_labels(selector)}"


def _amounts(gang: Gang) -> list[str]:
    """What each pod requests, as people write it."""
    amounts = [counted(manifest.cpus(gang), "CPU")]
    if gang.memory:
        amounts.append(f"{round(gang.memory / (1 << 30), 2):.12g} GiB of memory")
    requested = manifest.requests(gang).items()
    return [*amounts, *(f"{amount} {name}" for name, amount in requested if name not in _OWN)]


def _labels(selector: Mapping[str, str]) -> str:
    pairs = [f"{key}={value}" for key, value in selector.items()]
    return f"the label{'s' if len(pairs) > 1 else ''} {_listed(pairs)}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _room(node: Object, needed: Mapping[str, float]) -> int:
    """How many pods an empty node has room for."""
    has = node.get("status", {}).get("allocatable") or {}
    return min(
        (int(quantity(has.get(name, "0")) / amount) for name, amount in needed.items() if amount),
        default=0,
    )


def may_grow(api: Api, autoscaling: bool | None) -> bool:
    """Whether an autoscaler may add nodes: as the option ``autoscaling`` says; without it, whether
    there is a sign of one. A denied look is none."""
    if autoscaling is not None:
        return autoscaling
    groups = api.get("/apis").get("groups") or ()
    if any(group["name"] == "karpenter.sh" for group in groups):
        return True
    path = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
    return api.request("GET", path).status == 200


def _selects(selector: Mapping[str, str], node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def _used(api: Api, gpus: str) -> dict[str, tuple[float, float]] | None:
    """CPUs and GPUs that pods request, by node; None without the right to list all pods."""
    selector = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
    answer = api.request("GET", "/api/v1/pods", fieldSelector=selector)
    if answer.status >= 400:
        return None
    used: dict[str, tuple[float, float]] = {}
    for pod in answer.body["items"]:
        name = pod["spec"]["nodeName"]
        had = used.get(name, (0.0, 0.0))
        wants = [
            (c.get("resources") or {}).get("requests") or {} for c in pod["spec"]["containers"]
        ]
        cpus = sum(quantity(want.get("cpu", "0")) for want in wants)
        used[name] = (had[0] + cpus, had[1] + sum(quantity(want.get(gpus, "0")) for want in wants))
    return used


def _host(node: Object, gpus: str, used: Mapping[str, tuple[float, float]] | None) -> Host:
    status = node.get("status") or {}
    has = status.get("allocatable") or {}
    conditions = status.get("conditions") or ()
    ready: Mapping[str, Any] = next((c for c in conditions if c["type"] == "Ready"), {})
    cordoned = bool(node.get("spec", {}).get("unschedulable"))
    up = ready.get("status") == "True"
    cpus = quantity(has.get("cpu", "0"))
    own = quantity(has.get(gpus, "0"))
    free: tuple[float | None, int | None] = (None, None) if used is None else (0.0, 0)
    if used is not None and up and not cordoned:
        taken = used.get(node["metadata"]["name"], (0.0, 0.0))
        free = max(0.0, cpus - taken[0]), max(0, int(own - taken[1]))
    addresses = {address["type"]: address["address"] for address in status.get("addresses") or ()}
    return Host(
        node["metadata"]["name"],
        str(addresses.get("InternalIP") or ""),
        ("ready" if up else "not ready") + (", cordoned" if cordoned else ""),
        up and not cordoned,
        cpus,
        free[0],
        int(own),
        free[1],
        int(quantity(has.get("memory", "0"))),
        "" if up else str(ready.get("message") or ""),
    )
