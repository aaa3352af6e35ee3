"""The server itself inside the cluster: its Deployment, its volume and its Service. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from allranks.engines.kubernetes.setup import ACCOUNT, rights_objects

# Where the server mounts the volume, and the pods of jobs with it as their home volume.
HOME = "/var/lib/allranks"
PORT = 7443
# The router of endpoints listens at the next one.
_PORTS = {"https": PORT, "endpoints": PORT + 1}
# What the server's pod requests. Its memory grows with the jobs that run at a time.
_NEEDS = {"cpu": "500m", "memory": "512Mi"}


class ServerOptions(NamedTuple):
    """``image`` has `allranks[kubernetes]`. ``storage``: the size of the volume, in
    ``storage_class`` or the cluster's default one. ``access_mode``: ReadWriteMany if the pods of
    jobs mount it, too. ``database``: the name of a Secret with the URL
    of a PostgreSQL in `url`; empty: SQLite on the volume. ``host``: the name by which people reach
    the server besides the Service's, such as that of an ingress."""

    image: str
    storage: str = "100Gi"
    storage_class: str = ""
    access_mode: str = "ReadWriteOnce"
    database: str = ""
    host: str = ""


def server(namespace: str, options: ServerOptions) -> str:
    """Return the manifest of the namespace, the server's rights and the server, as YAML."""
    from allranks.engines.kubernetes.yaml_text import documents  # lazy: YAML takes 60 ms

    return documents(objects(namespace, options))


def objects(namespace: str, options: ServerOptions) -> list[dict[str, Any]]:
    metadata = {"name": ACCOUNT, "namespace": namespace, "labels": _LABELS}
    claim: dict[str, Any] = {
        "accessModes": [options.access_mode],
        "resources": {"requests": {"storage": options.storage}},
    }
    if options.storage_class:
        claim["storageClassName"] = options.storage_class
    deployment = {
        # Two servers of one home are refused: the old one ends before the new one starts.
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": _pod(namespace, options)},
    }
    service = {
        # Its name leads to the one pod; agents come by the same name to another port.
        "clusterIP": "None",
        "selector": _LABELS,
        "ports": [
            {"name": name, "port": port, "targetPort": name} for name, port in _PORTS.items()
        ],
    }
    return [
        *rights_objects(namespace),
        _object("v1", "PersistentVolumeClaim", metadata, claim),
        _object("apps/v1", "Deployment", metadata, deployment),
        _object("v1", "Service", metadata, service),
    ]


_LABELS = {"app.kubernetes.io/name": "allranks", "app.kubernetes.io/component": "server"}


def _object(version: str, kind: str, metadata: dict[str, Any], spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(namespace: str, options: ServerOptions) -> dict[str, Any]:
    name = f"{ACCOUNT}.{namespace}.svc"
    names = [ACCOUNT, f"{ACCOUNT}.{namespace}", name, *filter(None, [options.host])]
    env: list[dict[str, Any]] = [
        {"name": "ALLRANKS_HOME", "value": HOME},
        {"name": "ALLRANKS_HOST_NAMES", "value": ",".join(names)},
        # A pod that starts again has another address.
        {"name": "ALLRANKS_SERVER_ADDRESS", "value": f"dns:{name}"},
    ]
    if options.database:
        secret = {"secretKeyRef": {"name": options.database, "key": "url"}}
        env.append({"name": "ALLRANKS_DATABASE", "valueFrom": secret})
    probe = {"httpGet": {"path": "/healthz", "port": "https", "scheme": "HTTPS"}}
    container = {
        "name": "server",
        "image": options.image,
        "command": ["allranks", "server", "run", "--host", "0.0.0.0", "--host-port", str(PORT)],
        "env": env,
        "ports": [{"name": name, "containerPort": port} for name, port in _PORTS.items()],
        # A large database may need minutes for a migration.
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 600},
        "readinessProbe": {**probe, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": {
            **probe,
            "periodSeconds": 20,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
        "resources": {"requests": _NEEDS},
        "volumeMounts": [{"name": "home", "mountPath": HOME}],
    }
    return {
        "serviceAccountName": ACCOUNT,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": ACCOUNT}}],
    }
