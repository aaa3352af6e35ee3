"""The role that `compute render` prints: enough, and not a verb too many."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allranks.engines.base import Handle
from allranks.engines.kubernetes.api import Api
from allranks.engines.kubernetes.cluster import RIGHTS
from allranks.engines.kubernetes.engine import KubernetesEngine
from allranks.engines.kubernetes.setup import rights
from allranks.errors import Refused
from allranks.statuses import GangState
from tests.engines.contract import Case
from tests.kubernetes.bed import Kubernetes
from tests.kubernetes.conftest import apply
from tests.kubernetes.test_kubernetes_engine import NEEDS, SECONDS, case, says
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(600)]
__all__ = ["case"]

VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
ALL = {
    "": "pods pods/log pods/exec pods/eviction secrets services events configmaps "
    "persistentvolumeclaims serviceaccounts nodes namespaces resourcequotas",
    "apps": "deployments daemonsets statefulsets",
    "batch": "jobs cronjobs jobs/status",
    "rbac.authorization.k8s.io": "roles rolebindings",
}
ROLES = "apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def account(case: Case, kubernetes: Kubernetes, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Options for the service account of the printed manifest."""
    space = case.engine._api.namespace
    apply(kubernetes, [*yaml.safe_load_all(rights(space))])
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"api/v1/namespaces/{space}/serviceaccounts/allranks/token"
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kubernetes.create(path, asked)["status"]["token"]}
    file = tmp_path / "account.yaml"
    file.write_text(yaml.safe_dump(config))
    yield {"kubeconfig": str(file), "namespace": space}
    for kind in ("clusterrolebindings", "clusterroles"):
        kubernetes.delete(f"{ROLES}/{kind}/allranks-nodes-{space}")


@pytest.fixture
def engine(account: dict[str, Any], tmp_path: Path) -> KubernetesEngine:
    folder = tmp_path / "engines" / "kubernetes"
    made = KubernetesEngine(tmp_path, folder, tmp_path / "nodes", account)
    until(lambda: refusal(made, account) == "", SECONDS)
    return made


def refusal(engine: KubernetesEngine, options: dict[str, Any]) -> str:
    try:
        engine.check({**NEEDS, **options})
    except Refused as error:
        return error.message
    return ""


def without(kubernetes: Kubernetes, space: str, group: str, kind: str, verb: str) -> None:
    """Take one verb from the role."""
    less = []
    for (api, each), verbs in RIGHTS.items():
        kept = [one for one in verbs if (api, each, one) != (group, kind, verb)]
        if kept:
            less.append({"apiGroups": [api], "resources": [each], "verbs": kept})
    kubernetes.patch(f"{ROLES}/namespaces/{space}/roles/allranks", {"rules": less})


def test_the_account_may_do_what_is_printed_and_nothing_else(
    engine: KubernetesEngine, account: dict[str, Any]
):
    """As `kubectl auth can-i`, for every verb of what a namespace holds."""
    api, may = Api(account), set()
    for group, kinds in ALL.items():
        for kind in kinds.split():
            resource, _, part = kind.partition("/")
            for verb in VERBS:
                attributes = {"verb": verb, "group": group, "resource": resource}
                attributes |= {"namespace": account["namespace"], "subresource": part}
                review = {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": attributes},
                }
                path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
                if api.request("POST", path, review).body["status"]["allowed"]:
                    may.add((group, kind, verb))
    printed = {(*kind, verb) for kind, verbs in RIGHTS.items() for verb in verbs}
    assert may == printed | {("", "nodes", "list"), ("", "resourcequotas", "list")}


def test_each_verb_of_the_role_is_used(
    engine: KubernetesEngine,
    case: Case,
    kubernetes: Kubernetes,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
):
    """A gang from its submit to its end, one that a quota delays, and one whose node is lost."""
    used: set[tuple[str, str, str]] = set()
    send = Api._send

    def counted(api: Api, method: str, path: str, *more: Any) -> Any:
        used.add(used_right(method, path, more[1]))
        reply = send(api, method, path, *more)
        assert reply.status not in (401, 403), path
        return reply

    monkeypatch.setattr(Api, "_send", counted)
    kubernetes.fill(namespace)
    quota = kubernetes.limit(namespace, {"pods": "3"})
    engine.submit(says(case, "import time; time.sleep(300)"))
    handle = Handle(case.gang.key)
    until(lambda: "exceeded quota" in engine.poll([handle])[handle.key].why, SECONDS)
    kubernetes.delete(quota)
    until(lambda: engine.poll([handle])[handle.key].state is GangState.UP, SECONDS)
    kubernetes.nodes("kill", "node-2")
    until(lambda: engine.poll([handle])[handle.key].lost, SECONDS)
    engine.stop(handle)
    until(lambda: engine.poll([handle])[handle.key].state is GangState.GONE, SECONDS)
    printed = {(*kind, verb) for kind, verbs in RIGHTS.items() for verb in verbs}
    assert {each for each in used if each[1] in {kind for _, kind in RIGHTS}} == printed


def used_right(method: str, path: str, parameters: Any) -> tuple[str, str, str]:
    """Group, kind and verb of a request, as Kubernetes' authorizer reads them."""
    found = re.fullmatch(r"/apis?/(?:([^/]+)/)?v1/(?:namespaces/[^/]+/)?([^/]+)(/[^/]+)?", path)
    if found is None:
        return "", path, method
    verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method, "get")
    if verb == "get" and not found[3]:
        verb = "watch" if "watch" in parameters else "list"
    return found[1] or "", found[2], verb


def test_each_right_that_is_missing_is_named(
    engine: KubernetesEngine, account: dict[str, Any], kubernetes: Kubernetes
):
    space = account["namespace"]
    for (group, kind), verbs in RIGHTS.items():
        for verb in verbs:
            without(kubernetes, space, group, kind, verb)
            named = f"rights are missing: {verb} {kind}"
            until(lambda named=named: refusal(engine, account).endswith(named), SECONDS)  # type: ignore[misc]


def test_a_right_that_is_taken_away_is_told_where_the_job_waits(
    engine: KubernetesEngine,
    account: dict[str, Any],
    kubernetes: Kubernetes,
    allranks: Allranks,
    home: Path,
):
    """`compute create` refuses; of a compute that was there before, `run` waits and says why."""
    make = ("compute", "create", "there", "--type", "kubernetes", "--cpus", 1, "--default")
    make += ("--kubeconfig", account["kubeconfig"], "--namespace", account["namespace"])
    make += ("--image", NEEDS["image"], "--home-volume", "host")
    assert allranks(*make).returncode == 0
    without(kubernetes, account["namespace"], "", "secrets", "create")
    until(lambda: refusal(engine, account), SECONDS)
    refused = allranks(*("again" if word == "there" else word for word in make))
    assert refused.returncode == 2
    assert "these rights are missing: create secrets" in refused.stderr
    assert "allranks compute render kubernetes --namespace" in refused.stderr
    assert allranks("run", "--detach", "--name", "j", "--", "bash", "-c", "echo hi").returncode == 0

    def job() -> Any:
        return json.loads(allranks("job", "show", "j", "--json").stdout)

    until(lambda: 'cannot create resource "secrets"' in str(job()["status_reason"]), SECONDS)
    apply_role(kubernetes, account["namespace"])
    until(lambda: job()["status"] == "Completed", SECONDS)
    assert allranks("job", "logs", "j").stdout == "hi\n"


def apply_role(kubernetes: Kubernetes, space: str) -> None:
    (role,) = (each for each in yaml.safe_load_all(rights(space)) if each["kind"] == "Role")
    kubernetes.patch(f"{ROLES}/namespaces/{space}/roles/allranks", {"rules": role["rules"]})
