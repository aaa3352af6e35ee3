"""What an administrator applies once for a team's namespace: its service account and its rights.
Pure."""

from __future__ import annotations

import textwrap
from typing import Any

from allranks.engines.kubernetes.cluster import OPTIONAL, RIGHTS
from allranks.engines.kubernetes.options import expect_namespace

ACCOUNT = "allranks"


def rights(namespace: str) -> str:
    """Return the manifest of the namespace, the service account `allranks`, and its role, as YAML.
    Raises Refused for an impossible name.

    The roles have every verb that the engine needs, and of the optional ones those that tell
    nothing of other namespaces but the names of nodes. A comment says what each of these buys.
    """
    from allranks.engines.kubernetes.yaml_text import documents  # lazy: YAML takes 60 ms

    lines = ["What jobs need. These rights are optional:"]
    for right, where, purpose in OPTIONAL:
        lines += textwrap.wrap(
            f"{right} ({where or 'not below'}): {purpose}",
            92,
            initial_indent="- ",
            subsequent_indent="  ",
        )
    return "".join(f"# {line}\n" for line in lines) + documents(rights_objects(namespace))


def rights_objects(namespace: str) -> list[dict[str, Any]]:
    expect_namespace(namespace)
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    within = {"name": ACCOUNT, "namespace": namespace}
    nodes = {"name": f"{ACCOUNT}-nodes-{namespace}"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": within,
            "rules": [
                {"apiGroups": [api], "resources": [kind], "verbs": list(verbs)}
                for (api, kind), verbs in (*RIGHTS.items(), (("", "resourcequotas"), ("list",)))
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": within,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [account],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": nodes,
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": nodes,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": nodes["name"]},
            "subjects": [account],
        },
    ]
