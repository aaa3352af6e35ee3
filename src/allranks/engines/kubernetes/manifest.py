"""Render the objects of a gang: an Indexed Job, its headless Service and its Secret. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.core import amounts
from allranks.core.plan import Gang
from allranks.engines.base import MARKER
from allranks.engines.kubernetes import options as option
from allranks.engines.kubernetes.start import Fetched, Start, literal
from allranks.engines.kubernetes.strategic_merge import merged
from allranks.errors import Refused

HOME, GANG, KEY = "allranks/home", "allranks/gang", "allranks/key"
HOLD_LIMIT = "allranks/hold-limit"
# Seconds that a gang may hold some nodes while the cluster adds others.
HOLD = 120
INDEX = "batch.kubernetes.io/job-completion-index"
QUEUE = "kueue.x-k8s.io/queue-name"
CONTAINER = "node"
# Else what a program printed last before it failed is not in the pod's status.
_LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}
_PYTHON = "/allranks/python"
# Seconds that an agent has beyond its ranks' grace, to send its last data.
_TO_END = 10
_GRACE = 30
# What an agent without the home's volume does in an end from outside, each for at most the grace:
# it ends the ranks, and sends the state, uploads and files.
_ENDING = 4

# By that Python itself: its image may have no shell.
_COPY = "import shutil, sys; shutil.copytree(*sys.argv[1:], symlinks=True, dirs_exist_ok=True)"


class Names(NamedTuple):
    """What identifies a gang in the cluster: ``name`` is that of its objects, ``mark`` its home."""

    key: str
    mark: str

    @property
    def name(self) -> str:
        """A DNS label. A pod is named after it and its index, and has 63 characters as well."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.key.lower()).strip("-")[:28].strip("-")
        digest = hashlib.sha256(f"{self.mark}.{self.key}".encode()).hexdigest()[:8]
        return "-".join(filter(None, ("allranks", plain, digest)))

    @property
    def labels(self) -> dict[str, str]:
        return {"app.kubernetes.io/managed-by": "allranks", HOME: self.mark, GANG: self.name}


def job(gang: Gang, names: Names, start: Start) -> dict[str, Any]:
    """The Job of a gang. Raises Refused for options that cannot be."""
    options = gang.options
    labels = {**names.labels, **option.pairs("labels", options.get("labels")), **_apart(gang)}
    annotations = {KEY: names.key, **option.pairs("annotations", options.get("annotations"))}
    queue = {QUEUE: str(options["queue"])} if options.get("queue") else {}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.name,
            "labels": {**labels, **queue},
            "annotations": {**annotations, **_hold_limit(options)},
        },
        "spec": {
            # Until its Secret exists; with a queue, until Kueue admits it.
            "suspend": True,
            "completionMode": "Indexed",
            "completions": gang.nodes,
            "parallelism": gang.nodes,
            # A node that ends is not started again, and does not end the others: we decide.
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailIndex",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod(gang, names, start),
            },
        },
    }
    patched: dict[str, Any] = merged(made, options.get("patch") or {})
    _check_identity(made, patched)
    return patched


def _hold_limit(options: Mapping[str, Any]) -> dict[str, str]:
    """What the engine reads of a Job as its ``hold_limit``."""
    if options.get("hold_limit") is not None:
        return {HOLD_LIMIT: str(options["hold_limit"])}
    return {HOLD_LIMIT: str(HOLD)} if options.get("autoscaling") else {}


def service(names: Names, owner: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The headless Service, which gives pods their names. ``owner``: the Job as it was created."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _owned(names, owner),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {GANG: names.name},
        },
    }


def secret(
    names: Names, env: Mapping[str, str], owner: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The Secret with the variables by which agents find the server."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(names, owner),
        "type": "Opaque",
        "immutable": True,
        "stringData": dict(env),
    }


def cpus(gang: Gang) -> float:
    """CPUs of each node: one per process if the gang requests none."""
    return gang.cpus or max(1, gang.processes)


def requests(gang: Gang) -> dict[str, str]:
    """What each pod requests, by resource name."""
    requested = {"cpu": f"{math.ceil(cpus(gang) * 1000)}m"}
    if gang.memory is not None:
        requested["memory"] = str(gang.memory)
    return {**requested, **_devices(gang)}


def _devices(gang: Gang) -> dict[str, str]:
    gpus = str(gang.options.get("gpu_resource") or option.GPUS)
    devices = {gpus: str(gang.gpus)} if gang.gpus else {}
    return {**devices, **option.amounts(gang.options.get("resources"))}


def _owned(names: Names, owner: Mapping[str, Any] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": names.name, "labels": names.labels}
    if owner is not None:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": names.name}
        metadata["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    return metadata


def _pod(gang: Gang, names: Names, start: Start) -> dict[str, Any]:
    options = gang.options
    volumes = _volumes(gang, start)
    copied = bool(options.get("agent_image"))
    python = f"{_PYTHON}/bin/python3" if copied else str(options.get("python") or "python3")
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "subdomain": names.name,
        "terminationGracePeriodSeconds": _ending(gang, start),
        # The variables that Docker links once had: one for each Service of the namespace.
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(options.get("service_account")),
    }
    spec |= _placement(gang, names)
    if copied:
        folder = str(options.get("agent_python") or "/python").rstrip("/")
        spec["initContainers"] = [
            {
                "name": "python",
                "image": str(options["agent_image"]),
                "command": [
                    literal(f"{folder}/bin/python3"),
                    "-c",
                    _COPY,
                    literal(folder),
                    _PYTHON,
                ],
                "volumeMounts": [{"name": "python", "mountPath": _PYTHON}],
                **_LAST_WORDS,
            }
        ]
    spec["containers"] = [_container(gang, names, start, python, volumes)]
    spec["volumes"] = [{"name": name, **volume.source} for name, volume in volumes.items()]
    return spec


def _ending(gang: Gang, start: Start) -> int:
    """The most seconds from an eviction's notice to the end of the pod."""
    grace = _GRACE if gang.grace is None else gang.grace
    return math.ceil(grace * (_ENDING if isinstance(start, Fetched) else 1) + _TO_END)


def _container(
    gang: Gang,
    names: Names,
    start: Start,
    python: str,
    volumes: Mapping[str, option.Volume],
) -> dict[str, Any]:
    requested = requests(gang)
    devices = _devices(gang)
    limits = {**({"memory": requested["memory"]} if "memory" in requested else {}), **devices}
    mounts = [
        {"name": name, "mountPath": volume.path, **({"readOnly": True} if volume.read_only else {})}
        for name, volume in volumes.items()
    ]
    return {
        "name": CONTAINER,
        "image": str(gang.options.get("image") or ""),
        "command": start.command(gang, python),
        "env": [
            {
                "name": "ALLRANKS_AGENT_NODE",
                "valueFrom": _field(f"metadata.annotations['{INDEX}']"),
            },
            {"name": "ALLRANKS_AGENT_ADDRESS", "valueFrom": _field("status.podIP")},
            {
                "name": "ALLRANKS_AGENT_CPUS",
                "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}},
            },
            {"name": MARKER, "value": f"{names.mark}.{names.key}"},
            *start.variables(gang, python),
        ],
        "envFrom": [{"secretRef": {"name": names.name}}],
        "resources": {"requests": requested, "limits": limits},
        "volumeMounts": mounts,
        **_LAST_WORDS,
    }


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


def _volumes(gang: Gang, start: Start) -> dict[str, option.Volume]:
    """All volumes by name, those that the agent starts from first."""
    options = gang.options
    volumes = start.volumes(options)
    own = [option.volume(spec) for spec in options.get("volumes") or ()]
    volumes |= {f"volume-{n}": volume for n, volume in enumerate(own)}
    if options.get("shm_size"):
        size = str(amounts.memory(options["shm_size"]))
        volumes["shm"] = option.Volume(
            {"emptyDir": {"medium": "Memory", "sizeLimit": size}}, "/dev/shm"
        )
    if options.get("agent_image"):
        volumes["python"] = option.Volume({"emptyDir": {}}, _PYTHON)
    return volumes


def _apart(gang: Gang) -> dict[str, str]:
    """The label of the pods that rather run on different machines."""
    digest = hashlib.sha256(gang.apart.encode()).hexdigest()[:16]
    return {"allranks/apart": digest} if gang.apart else {}


def _placement(gang: Gang, names: Names) -> dict[str, Any]:
    options = gang.options
    selector = option.pairs("node_selector", options.get("node_selector"))
    tolerations = [option.toleration(text) for text in options.get("tolerations") or ()]
    if gang.spot:
        selector |= option.pairs("spot_node_selector", options.get("spot_node_selector"))
        for text in options.get("spot_tolerations") or ():
            tolerations.append(option.toleration(text, "spot_tolerations"))
    secrets = [{"name": name} for name in options.get("image_pull_secrets") or ()]
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {GANG: names.name}},
        }
        for key in options.get("topology_spread") or ()
    ]
    if gang.apart:
        spread.append(
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",  # a preference
                "labelSelector": {"matchLabels": _apart(gang)},
            }
        )
    fields = {
        "nodeSelector": selector,
        "tolerations": tolerations,
        "affinity": options.get("affinity"),
        "priorityClassName": options.get("priority_class"),
        "serviceAccountName": options.get("service_account"),
        "imagePullSecrets": secrets,
        "topologySpreadConstraints": spread,
        "hostNetwork": options.get("host_network"),
        "dnsPolicy": "ClusterFirstWithHostNet" if options.get("host_network") else None,
    }
    return {key: value for key, value in fields.items() if value}


def _check_identity(made: Mapping[str, Any], patched: Mapping[str, Any]) -> None:
    """Raise Refused if the patch changed what a gang is recognised by, or all-or-none."""

    def ours(manifest: Mapping[str, Any]) -> Any:
        spec, metadata = manifest["spec"], manifest["metadata"]
        pod = spec["template"]
        return [
            manifest["apiVersion"],
            manifest["kind"],
            metadata["name"],
            *(spec[key] for key in ("completionMode", "completions", "parallelism", "suspend")),
            *(spec[key] for key in ("backoffLimitPerIndex", "podReplacementPolicy")),
            [metadata["labels"].get(key) for key in (HOME, GANG)],
            [pod["metadata"]["labels"].get(key) for key in (HOME, GANG)],
            pod["spec"]["restartPolicy"],
            [c["command"] for c in pod["spec"]["containers"] if c["name"] == CONTAINER],
        ]

    try:
        same = ours(made) == ours(patched)
    except (KeyError, TypeError, AttributeError):
        same = False
    if not same:
        raise Refused(
            "the patch changes how the job is identified, counted or started",
            where="patch",
            hint=f"leave names, counts, restarts and the command of the container `{CONTAINER}`",
        )
