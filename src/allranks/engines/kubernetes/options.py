"""The options of the Kubernetes engine, and how their text becomes parts of a manifest. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from allranks.engines.options import Option, Type
from allranks.errors import Refused

GPUS = "nvidia.com/gpu"

OPTIONS = (
    Option(
        "kubeconfig",
        "kubeconfig file (KUBECONFIG, or ~/.kube/config; inside a pod its service account)",
        Type.PATH,
        connects=True,
        variable="KUBECONFIG",
    ),
    Option("context", "context of the kubeconfig (its current one)", connects=True),
    Option("namespace", "namespace of the jobs (the context's)", connects=True),
    Option(
        "home_volume",
        "volume with ALLRANKS_HOME, mounted at the same path: pvc:CLAIM, nfs:SERVER:/EXPORT, "
        "or host for the same folder of each node (none: pods get and send files over the network)",
    ),
    Option(
        "cache_volume",
        "without home_volume: volume that keeps environments and downloaded data for later pods: "
        "pvc:CLAIM, nfs:SERVER:/EXPORT or host:/FOLDER (none: each pod makes them)",
    ),
    Option("image", "image of the pods"),
    Option("python", "Python 3.11 or newer of that image, for the agent", default="python3"),
    Option("agent_image", "image with a relocatable Python for the agent, if `image` has none"),
    Option("agent_python", "folder with that Python in agent_image", default="/python"),
    Option("image_pull_secrets", "secret with registry credentials", Type.LINES),
    Option("service_account", "service account of the pods (the namespace's default)"),
    Option("node_selector", "label that nodes must have: KEY=VALUE", Type.LINES),
    Option("tolerations", "taint to tolerate: KEY[=VALUE][:EFFECT]", Type.LINES),
    Option("spot_tolerations", "taint that jobs of tier spot tolerate in addition", Type.LINES),
    Option("spot_node_selector", "label that nodes of spot jobs must have", Type.LINES),
    Option("affinity", "affinity of the pods", Type.MAPPING),
    Option("topology_spread", "spread the nodes of a job over this node label", Type.LINES),
    Option("priority_class", "priority class of the pods"),
    Option("queue", "Kueue's LocalQueue; the job starts suspended and Kueue admits it whole"),
    Option("labels", "label of the job and its pods: KEY=VALUE", Type.LINES),
    Option("annotations", "annotation of the job and its pods: KEY=VALUE", Type.LINES),
    Option(
        "volumes",
        "volume and where it is mounted: pvc:CLAIM=/PATH, nfs:SERVER:/EXPORT=/PATH, "
        "host:/FOLDER=/PATH, or empty=/PATH; `:ro` at the end makes it read-only",
        Type.LINES,
    ),
    Option("shm_size", "size of /dev/shm in memory, such as 8g (64m of the runtime)", Type.MEMORY),
    Option("gpu_resource", "resource name of a GPU", default=GPUS),
    Option("resources", "additional resource of each node, such as rdma/hca=1", Type.LINES),
    Option("host_network", "use the network of the host, for RDMA without a plugin", Type.SWITCH),
    Option("patch", "strategic-merge patch of the Job, such as {spec: {…}}", Type.MAPPING),
    Option(
        "autoscaling",
        "nodes are added on demand: refuse no job for its size (as the cluster shows)",
        Type.SWITCH,
    ),
    Option(
        "hold_limit",
        "seconds that a job may hold some nodes while others are missing; it then releases them "
        "and tries again later (120 if nodes are added on demand, else until one is refused; not "
        "with `queue`)",
        Type.NUMBER,
    ),
)


class Volume(NamedTuple):
    """A volume of a pod and where it is mounted. ``source`` is its entry in the manifest."""

    source: Mapping[str, Any]
    path: str
    read_only: bool = False


def expect_namespace(text: str) -> None:
    """Check the name of a namespace, which is a label of DNS. Raises Refused."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        form = "lower-case letters, digits and `-`, at most 63, `-` neither first nor last"
        raise _invalid("namespace", text, form)


def volume(text: str) -> Volume:
    """Parse an item of ``volumes``. Raises Refused."""
    spec, _, path = text.rpartition("=")
    path, read_only = path.removesuffix(":ro"), path.endswith(":ro")
    if not spec or not path.startswith("/"):
        raise _invalid("volumes", text, "pvc:CLAIM=/PATH, nfs:SERVER:/EXPORT=/PATH or host:/A=/B")
    return Volume(source("volumes", spec), path, read_only)


def mounts(options: Mapping[str, Any]) -> Sequence[str]:
    """Where volumes are mounted that outlast a pod; everywhere, if a patch mounts some."""
    volumes = [volume(spec) for spec in options.get("volumes") or ()]
    mounted = [volume.path for volume in volumes if "emptyDir" not in volume.source]
    return ["/"] if "mountPath" in str(options.get("patch")) else mounted


def source(option: str, spec: str) -> Mapping[str, Any]:
    """The volume source of ``pvc:CLAIM``, ``nfs:SERVER:/EXPORT``, ``host:/FOLDER`` or ``empty``.
    Raises Refused."""
    kind, _, rest = spec.partition(":")
    if kind == "pvc" and rest:
        return {"persistentVolumeClaim": {"claimName": rest}}
    if kind == "host" and rest.startswith("/"):
        return {"hostPath": {"path": rest}}
    if kind == "empty" and not rest:
        return {"emptyDir": {}}
    server, separator, export = rest.partition(":/")
    if kind == "nfs" and server and separator:
        return {"nfs": {"server": server, "path": f"/{export}"}}
    raise _invalid(option, spec, "pvc:CLAIM, nfs:SERVER:/EXPORT, or a folder of each host")


def pairs(option: str, lines: Sequence[str] | None) -> dict[str, str]:
    """Parse KEY=VALUE lines. Raises Refused."""
    values = {}
    for line in lines or ():
        key, equals, value = line.partition("=")
        if not key or not equals:
            raise _invalid(option, line, "KEY=VALUE")
        values[key] = value
    return values


def amounts(lines: Sequence[str] | None) -> dict[str, str]:
    """Parse the additional resources, such as ``rdma/hca=1``. Raises Refused."""
    resources = pairs("resources", lines)
    for name, amount in resources.items():
        if not re.fullmatch(r"\d+(\.\d+)?([kMGTPE]i?|m)?", amount):
            raise _invalid("resources", f"{name}={amount}", "NAME=AMOUNT, such as rdma/hca=1")
        if amount.endswith("m") and name != "cpu":
            size = amount.removesuffix("m")
            hint = f"Kubernetes reads `m` as thousandths: write {name}={size}Mi or {name}={size}M"
            raise Refused(f"{name}={amount} is no whole amount", where="resources", hint=hint)
    return resources


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def toleration(text: str, option: str = "tolerations") -> dict[str, str]:
    """Parse KEY[=VALUE][:EFFECT] of ``option``; ``*`` tolerates everything. Raises Refused."""
    rest, colon, effect = text.rpartition(":")
    if not colon:
        rest, effect = text, ""
    key, equals, value = rest.partition("=")
    if not key or (key == "*" and equals) or (colon and effect not in _EFFECTS):
        raise _invalid(option, text, f"KEY[=VALUE][:EFFECT], EFFECT {_either(_EFFECTS)}")
    fields: dict[str, str] = {} if key == "*" else {"key": key}
    fields["operator"] = "Equal" if equals else "Exists"
    if equals:
        fields["value"] = value
    if effect:
        fields["effect"] = effect
    return fields


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _invalid(option: str, text: str, form: str) -> Refused:
    return Refused(f"{text!r} is not valid", where=option, hint=f"write {form}")
