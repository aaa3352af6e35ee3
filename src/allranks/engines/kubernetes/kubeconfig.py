"""Load a kubeconfig with the official client, and say in a sentence what is wrong with it.

The client's own words name its internals; it continues without credentials if a program that
provides them fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.errors import Refused

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The client goes on with the whole user, its secrets included.
_MISSING = re.compile(r"Expected key (\S+) in ")


class Denied(Refused):
    """The cluster does not let us, or the namespace does not exist: no fault of a job."""


class _Parts(NamedTuple):
    """The file's parts by name, the folders of the clusters' files, and the name of its current
    context."""

    contexts: Mapping[str, Any]
    clusters: Mapping[str, Any]
    users: Mapping[str, Any]
    folders: Mapping[str, str]
    current: str


def load(configuration: Any, options: Mapping[str, Any]) -> str:
    """Load what the options select into the client's ``configuration``: the service account of this
    pod, or a context of a kubeconfig. Returns its namespace.

    Raises Refused, or Denied if a program provides no credentials.
    """
    from kubernetes import config as untyped  # lazy: a third of a second, and an extra
    from kubernetes.config import kube_config  # lazy: as above

    config: Any = untyped
    file = options.get("kubeconfig") or None
    context = options.get("context") or None
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and (_ACCOUNT / "token").exists()
    if inside and file is None and context is None:
        with _understood("the service account of this pod", str(_ACCOUNT)):
            config.load_incluster_config(client_configuration=configuration)
            return (_ACCOUNT / "namespace").read_text().strip()
    place = str(file or kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
    logging.getLogger().addFilter(_hide_values)  # the client logs what its programs fail with
    parts = _read(kube_config.KubeConfigMerger, place)
    name, chosen = _chosen(parts, context, place)
    with _understood(f"the context {name!r}", place):
        config.load_kube_config(place, name, configuration, persist_config=False)
    if not configuration.api_key and not configuration.cert_file:
        user = parts.users.get(str(chosen.get("user"))) or {}
        _expect_no_program(user, name, place, parts.folders[chosen["cluster"]])
    return str(chosen.get("namespace") or "default")


@contextlib.contextmanager
def _understood(what: str, place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the client raises many kinds, those of base64 and TLS among them
        reason = _without_values(str(error).strip().partition("\n")[0])
        message = f"{what} cannot be used: {reason}"
        hint = "`kubectl get pods` with the same kubeconfig shows whether kubectl can use it"
        raise Refused(message, where=place, hint=hint) from None


def _without_values(message: str) -> str:
    missing = _MISSING.search(message)
    return f"the key {missing[1]!r} is missing" if missing else message


def _hide_values(record: logging.LogRecord) -> bool:
    record.msg = _without_values(record.msg) if isinstance(record.msg, str) else record.msg
    return True


def _read(merger: Any, place: str) -> _Parts:
    """The parts of the files at ``place``, a list with colons as in KUBECONFIG."""
    try:
        config = merger(place).config
        if config is None:
            raise FileNotFoundError(2, "no such file")
        contexts, clusters, users = (
            {item.value["name"]: item.value[kind] or {} for item in config[f"{kind}s"].value}
            for kind in ("context", "cluster", "user")
        )
        files = {item.value["name"]: item.path for item in config["clusters"].value}
        folders = {name: os.path.dirname(file) for name, file in files.items()}
        current = str(config.safe_get("current-context") or "")
        return _Parts(contexts, clusters, users, folders, current)
    except OSError as error:
        message = f"the kubeconfig cannot be read: {(error.strerror or str(error)).lower()}"
    except Exception as error:  # of YAML, of the client, and of what is not a mapping
        mark = getattr(error, "problem_mark", None)
        line = f": its line {mark.line + 1} is not valid YAML" if mark is not None else ""
        message = f"this is not a kubeconfig{line}"
    hint = "name the file of your cluster, which kubectl uses, too: --kubeconfig FILE"
    raise Refused(message, where=place, hint=hint)


def _chosen(parts: _Parts, context: str | None, place: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the content of the context. Raises Refused if it, or what it names, is not
    there."""
    name = context or parts.current
    names = f"contexts of this file: {', '.join(map(str, parts.contexts)) or 'none'}"
    if not name:
        message = "the kubeconfig has no current context"
        raise Refused(message, where=place, hint=f"choose one with --context; {names}")
    if name not in parts.contexts:
        raise Refused(f"the kubeconfig has no context {name!r}", where=place, hint=names)
    chosen: Mapping[str, Any] = parts.contexts[name]
    for kind, entries in (("cluster", parts.clusters), ("user", parts.users)):
        if (named := chosen.get(kind)) not in entries and (named or kind == "cluster"):
            message = f"the context {name!r} names a {kind} that is not there: {named!r}"
            raise Refused(message, where=place, hint=f"correct it there, or use another; {names}")
    return name, chosen


def _expect_no_program(user: Mapping[str, Any], context: str, place: str, folder: str) -> None:
    """Raise Denied if a program of the user should have provided credentials. The client starts it
    in the ``folder`` of the file with the cluster."""
    program = (user.get("exec") or {}).get("command")
    if not program:
        return
    path = os.path.realpath(os.path.join(folder, program)) if "/" in program else program
    if shutil.which(path) is None:
        message = f"`{program}`, which provides the credentials of {context!r}, is not installed"
        where = f"at {path}" if "/" in program else "on the server's PATH"
        hint = f"install it on the machine of the server; it must be {where}"
        hint = str(user["exec"].get("installHint") or "").strip().partition("\n")[0] or hint
    else:
        message = f"`{program}`, which provides the credentials of {context!r}, failed"
        hint = (
            f"log in to the cluster again; `kubectl get pods --context {context}` shows the error"
        )
    raise Denied(message, where=place, hint=hint)
