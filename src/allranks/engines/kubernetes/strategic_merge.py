"""Strategic-merge patches, as `kubectl patch` applies them to a Job, for one not sent yet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Lists of a pod whose items are merged by a key; all other lists are replaced.
# https://kubernetes.io/docs/reference/kubernetes-api (fields with "patch strategy: merge").
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ports": "containerPort",
    "resourceClaims": "name",
}
_DIRECTIVE = "$patch"


def merged(base: Any, patch: Any, name: str = "") -> Any:
    """Return ``base`` with ``patch``: null removes a key, and `$patch: replace` or `delete` does
    what it says."""
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return _mapping(base, patch)
    if isinstance(base, list) and isinstance(patch, list) and name in _KEYS:
        return _list(base, patch, _KEYS[name])
    return patch


def _mapping(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "replace":
        return rest
    result = dict(base)
    for key, value in rest.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result[key], value, key) if key in result else value
    return result


def _list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(base)
    if any(isinstance(item, Mapping) and item == {_DIRECTIVE: "replace"} for item in patch):
        return [item for item in patch if item != {_DIRECTIVE: "replace"}]
    for item in patch:
        same = [n for n, old in enumerate(result) if old.get(key) == item.get(key)]
        if item.get(_DIRECTIVE) == "delete":
            result = [old for n, old in enumerate(result) if n not in same]
        elif same:
            result[same[0]] = _mapping(result[same[0]], item)
        else:
            result.append({name: value for name, value in item.items() if name != _DIRECTIVE})
    return result
