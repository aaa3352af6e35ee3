"""What the quotas of a namespace allow a gang. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allranks.engines.kubernetes.holding import Refusal
from allranks.engines.kubernetes.quantities import quantity

# How the cluster refuses an object that a quota has no room for.
_EXCEEDED = re.compile(
    r"exceeded quota: (?P<name>[^,]+), "
    r"requested: (?P<requested>.+), used: (?P<used>.+), limited: (?P<limited>.+)"
)
# Also of a quota: it counts a resource that the pods do not request.
_FAILED = re.compile(r"(exceeded|failed) quota: ")


def refusal(event: str, nodes: int) -> Refusal | None:
    """Read a warning about a gang's Job of so many pods; None if it is not of a quota."""
    if not _FAILED.search(event):
        return None
    match = _EXCEEDED.search(event)
    if match is None:
        return Refusal(event)
    requested, limited = _amounts(match["requested"]), _amounts(match["limited"])
    over = {
        name: amount
        for name, amount in requested.items()
        if name in limited and nodes * quantity(amount) > quantity(limited[name])
    }
    if not over:
        return Refusal(event)
    name, amount = next(iter(over.items()))
    words = _words(match["name"], nodes, {name: amount}, {name: limited[name]})
    return Refusal(words, never=True)


def excess(quota: Mapping[str, Any], pod: Mapping[str, Any], nodes: int) -> str:
    """Why a ResourceQuota, with nothing else in its namespace, has no room for so many pods of that
    specification; empty if it has. One that counts only some pods is not judged."""
    spec = quota.get("spec") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        return ""
    needed = {"pods": "1", "count/pods": "1"}
    for kind in ("requests", "limits"):
        for name, amount in _of_pod(pod, kind).items():
            needed[f"{kind}.{name}"] = amount
            if kind == "requests":
                needed[name] = amount
    hard = spec.get("hard") or {}
    for name, limit in hard.items():
        if nodes * quantity(needed.get(name, "0")) > quantity(str(limit)):
            return _words(quota["metadata"]["name"], nodes, needed, {name: str(limit)})
    return ""


def _words(name: str, nodes: int, requested: Mapping[str, str], limited: Mapping[str, str]) -> str:
    resource, limit = next(iter(limited.items()))
    amounts = (
        f"requested {nodes} times {resource}={requested[resource]}, limited {resource}={limit}"
    )
    return f"the quota {name!r} of the namespace can never hold it: {amounts}"


def _amounts(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): amount.strip() for name, _, amount in pairs}


def _of_pod(pod: Mapping[str, Any], kind: str) -> dict[str, str]:
    """What the containers request together; the limit of what they do not request."""
    total: dict[str, str] = {}
    for container in pod.get("containers") or ():
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        own = {**limits, **(resources.get("requests") or {})} if kind == "requests" else limits
        for name, amount in own.items():
            before = total.get(name)
            both = f"{quantity(before or '0') + quantity(str(amount)):.12g}"
            total[name] = str(amount) if before is None else both
    return total
