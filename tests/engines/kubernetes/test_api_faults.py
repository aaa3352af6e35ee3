"""The engine at an API server that does not answer, answers late or wrongly, or forgets."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import GangStatus, Handle
from allranks.engines.kubernetes import cache
from allranks.engines.kubernetes.engine import KubernetesEngine
from allranks.errors import EngineError, Refused
from allranks.statuses import GangState, Reason
from tests.engines.kubernetes import api_server
from tests.engines.kubernetes.api_server import INDEX, ApiServer, answers, cuts
from tests.support import until

NEEDS = {"image": "trainer", "home_volume": "host"}
GANG = Gang("fox.1", 3, ("python", "-P", "-m", "allranks.agent"), {"T": "s3cret"}, options=NEEDS)
pytestmark = pytest.mark.medium


class Case(NamedTuple):
    server: ApiServer
    engine: KubernetesEngine
    folder: Path

    def seen(self) -> GangStatus:
        return self.engine.poll([Handle(GANG.key)])[GANG.key]

    def start(self) -> None:
        self.engine.submit(GANG)
        until(lambda: self.seen().state is GangState.UP)

    def asked(self, *kinds: str) -> list[str]:
        """The requests since the last call, those of these methods."""
        found = [f"{method} {path}" for method, path in self.server.requests if method in kinds]
        self.server.requests.clear()
        return found


def engine_at(server: ApiServer, folder: Path, token: str = api_server.TOKEN) -> KubernetesEngine:
    options = api_server.kubeconfig(folder, server, token)
    return KubernetesEngine(folder, folder / "engines" / "kubernetes", folder / "nodes", options)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.setattr(cache, "_BACKOFF", (0.02, 0.1))
    with api_server.running() as server:
        yield Case(server, engine_at(server, tmp_path), tmp_path)


def test_a_submitted_job_owns_its_secret_and_service_and_starts_when_they_are_there(case: Case):
    case.engine.submit(GANG)
    order = [line for line in case.asked("POST", "PATCH") if "namespaces" in line]
    kinds = [line.partition("/namespaces/team/")[2].partition("?")[0] for line in order]
    name = case.server.of("jobs")[0]["metadata"]["name"]
    assert kinds == ["jobs", "secrets", "services", f"jobs/{name}"]
    (secret,) = case.server.of("secrets")
    assert secret["stringData"] == {"T": "s3cret"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == f"uid-{name}"
    assert "s3cret" not in str(case.server.of("jobs") + case.server.of("pods"))


@pytest.mark.parametrize("part", ["/jobs?", "/secrets", "/services", "/jobs/"])
@pytest.mark.parametrize("fault", [answers(500), answers(429), cuts])
def test_a_submit_that_fails_anywhere_is_repeated_and_makes_one_gang(
    case: Case, part: str, fault: api_server.Fault
):
    case.server.fail("PATCH" if part == "/jobs/" else "POST", part, fault)
    with pytest.raises(EngineError):
        case.engine.submit(GANG)
    case.start()
    assert len(case.server.of("jobs")) == len(case.server.of("secrets")) == 1
    assert len(case.server.of("pods")) == 3


def test_the_name_is_taken_by_a_submit_that_was_cut(case: Case):
    case.start()
    # Another server of this home creates the Job between our question and our request.
    case.server.fail("GET", "/jobs/", answers(404, "not found"))
    assert case.engine.submit(GANG).ref == case.server.of("jobs")[0]["metadata"]["name"]
    assert len(case.server.of("jobs")) == 1


def test_a_quiet_time_has_no_requests_however_many_gangs(case: Case):
    keys = [f"job-{number}.1" for number in range(20)]
    case.server.creates_pods = False
    for key in keys:
        case.engine.submit(GANG._replace(key=key))
    handles = [Handle(key) for key in keys]
    case.engine.poll(handles)
    until(lambda: len(case.server.watches) == 2)
    case.engine.poll(handles)
    case.asked("GET")
    for _ in range(50):
        case.engine.poll(handles)
    assert case.asked("GET", "POST", "PATCH", "DELETE") == []


def test_a_cut_watch_resumes_where_it_was_and_misses_nothing(case: Case):
    case.start()
    until(lambda: len(case.server.watches) == 2)
    case.asked("GET")
    case.server.cut_watches()
    case.server.change_pod(1, phase="Failed", reason="Evicted", message="disk pressure")
    until(lambda: case.seen().lost == (1,))
    lists = [line for line in case.asked("GET") if "watch=true" not in line]
    assert lists == []


@pytest.mark.parametrize("while_watching", [True, False])
def test_an_expired_version_lists_again(case: Case, while_watching: bool):
    case.start()
    until(lambda: len(case.server.watches) == 2)
    if not while_watching:
        case.server.fail("GET", "watch=true", *[answers(410, "too old")] * 2)
        case.server.cut_watches()
    case.asked("GET")
    case.server.change_pod(2, phase="Failed")
    case.server.forget()
    until(lambda: case.seen().lost == (2,))


@pytest.mark.parametrize("fault", [answers(500), answers(429), answers(503), cuts])
def test_no_answer_is_unknown_never_a_verdict(case: Case, fault: api_server.Fault):
    case.start()
    until(lambda: len(case.server.watches) == 2)
    case.server.fail("GET", "/team/", *[fault] * 12)
    case.server.cut_watches()
    until(lambda: case.seen().state is GangState.UNKNOWN)
    assert case.seen().why
    until(lambda: case.seen().state is GangState.UP)


def test_a_server_that_accepts_and_says_nothing_is_unknown(
    case: Case, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("allranks.engines.kubernetes.api._TIMEOUT", (0.3, 0.3))
    monkeypatch.setattr("allranks.engines.kubernetes.engine._FIRST", 2.0)
    case.server.fail("GET", "/team/", *[lambda handler: time.sleep(1)] * 4)
    assert case.seen().state is GangState.UNKNOWN
    assert "does not answer" in case.seen().why


def test_a_stop_that_fails_is_an_error_and_is_repeated(case: Case):
    case.start()
    case.server.fail("DELETE", "/jobs/", answers(500))
    with pytest.raises(EngineError):
        case.engine.stop(Handle(GANG.key))
    case.engine.stop(Handle(GANG.key))
    until(lambda: case.seen().state is GangState.GONE)
    assert case.server.of("secrets") == case.server.of("services") == []


def test_a_job_that_others_deleted_is_canceled(case: Case):
    case.start()
    for kind in ("pods", "jobs"):
        for each in case.server.of(kind):
            case.server.remove(kind, each["metadata"]["name"])
    until(lambda: case.seen().state is GangState.GONE)
    assert case.seen().reason is Reason.CANCELED
    assert "not by allranks" in case.seen().why


def test_a_pod_that_was_deleted_and_is_gone_before_the_next_poll_is_named(case: Case):
    case.start()
    pod = next(p for p in case.server.of("pods") if p["metadata"]["annotations"][INDEX] == "1")
    name = pod["metadata"]["name"]
    for phase in ("Running", "Succeeded"):
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod["status"]["phase"] = phase
        case.server.put("pods", pod)
    case.server.remove("pods", name)
    for node in (0, 2):
        case.server.change_pod(node, phase="Succeeded")
    (job,) = case.server.of("jobs")
    ended = {"type": "Failed", "status": "True", "reason": "FailedIndexes", "message": "x"}
    case.server.put("jobs", {**job, "status": {"conditions": [ended]}})
    until(lambda: case.seen().state is GangState.GONE)
    seen = case.seen()
    assert seen.reason is Reason.PREEMPTED
    assert seen.why.startswith(f"Kubernetes: node 1 on n1: its pod {name} was deleted, ")


def test_a_quota_in_the_way_is_shown(case: Case):
    case.server.creates_pods = False
    case.engine.submit(GANG)
    name = case.server.of("jobs")[0]["metadata"]["name"]
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Job", "name": name},
        "type": "Warning",
        "message": "exceeded quota: team, requested: cpu=1",
    }
    case.server.put("events", event, "ADDED")
    seen = case.seen()
    assert (seen.state, seen.why) == (GangState.QUEUED, f"Kubernetes: {event['message']}")


def warn(case: Case, message: str, name: str = "e1", at: str = "2026-01-01T00:00:09Z") -> None:
    """A warning of the Job controller about the only Job."""
    about = {"kind": "Job", "name": case.server.of("jobs")[0]["metadata"]["name"]}
    event = {"metadata": {"name": name}, "involvedObject": about, "type": "Warning"}
    case.server.put("events", {**event, "message": message, "lastTimestamp": at}, "ADDED")


def exceeded(used: int, limited: int) -> str:
    words = f"exceeded quota: team, requested: cpu=1, used: cpu={used}, limited: cpu={limited}"
    return f'Error creating: pods "x-2-58txx" is forbidden: {words}'


def test_a_quota_that_can_never_hold_the_gang_ends_it_at_once(case: Case):
    case.engine.submit(GANG)
    case.server.remove("pods", case.server.of("pods")[2]["metadata"]["name"])
    warn(case, exceeded(used=2, limited=2))
    until(lambda: case.seen().state is GangState.GONE)
    seen = case.seen()
    assert seen.reason is Reason.GANG_REFUSED
    assert seen.why == (
        "Kubernetes: the quota 'team' of the namespace can never hold it: "
        "requested 3 times cpu=1, limited cpu=2"
    )
    assert case.server.of("pods") == []


def test_a_gang_that_a_quota_does_not_hold_now_lets_go_and_says_so(
    case: Case, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("allranks.engines.kubernetes.holding._FIRST", 0.1)
    monkeypatch.setattr("allranks.engines.kubernetes.engine._NEW_WARNINGS", 0.0)
    case.engine.submit(GANG)
    job = case.server.of("jobs")[0]
    case.server.put("jobs", {**job, "status": {"startTime": "2026-01-01T00:00:08Z"}})
    case.server.remove("pods", case.server.of("pods")[2]["metadata"]["name"])
    warn(case, exceeded(used=4, limited=4))
    words = "Kubernetes: holds no nodes until it tries again: pods are refused: exceeded quota"
    seen: list[GangStatus] = []
    until(lambda: seen.append(case.seen()) or seen[-1].why.startswith(words))
    assert seen[-1].state is GangState.QUEUED
    until(lambda: not case.server.of("pods"))
    # What was said of its earlier pods does not count after it is resumed.
    case.server.put("jobs", {**job, "status": {"startTime": "2026-01-01T00:01:08Z"}})
    until(lambda: case.seen().state is GangState.UP)


@pytest.mark.parametrize(
    ("hard", "words"),
    [
        ({"cpu": "2"}, "requested 3 times cpu=1000m, limited cpu=2"),
        ({"requests.cpu": "2900m"}, "requested 3 times requests.cpu=1000m, limited"),
        ({"pods": "2"}, "requested 3 times pods=1, limited pods=2"),
        ({"limits.memory": "5Gi"}, "requested 3 times limits.memory=2147483648, limited"),
        ({"requests.nvidia.com/gpu": "2"}, "requested 3 times requests.nvidia.com/gpu=1, limited"),
        ({"cpu": "3", "memory": "6Gi", "pods": "3", "persistentvolumeclaims": "0"}, ""),
    ],
)
def test_a_quota_that_can_never_hold_the_gang_refuses_it(
    case: Case, hard: dict[str, str], words: str
):
    gang = GANG._replace(memory=2 << 30, gpus=1, options={**NEEDS, "autoscaling": True})
    case.server.put("resourcequotas", {"metadata": {"name": "team"}, "spec": {"hard": hard}})
    if not words:
        return case.engine.admit(gang)
    with pytest.raises(Refused) as caught:
        case.engine.admit(gang)
    said = "the job can never run on this cluster: the quota 'team' of the namespace can never hold"
    assert caught.value.message.startswith(f"{said} it: {words}")
    assert caught.value.where == "resources"
    # Without the right to list quotas, and for one that counts only some pods, nothing is known.
    case.server.fail("GET", "/resourcequotas", answers(403, "forbidden"))
    case.engine.admit(gang)
    scoped = {"hard": hard, "scopes": ["BestEffort"]}
    case.server.put("resourcequotas", {"metadata": {"name": "team"}, "spec": scoped})
    return case.engine.admit(gang)


def hold_two_of_three(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allranks.engines.kubernetes.holding._FIRST", 0.1)
    case.engine.submit(GANG)
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    scheduled["message"] = "0/3 nodes are available"
    for node in range(3):
        case.server.change_pod(node, phase="Pending", containerStatuses=[])
    with case.server.lock:
        (last,) = [p for p in case.server.of("pods") if p["metadata"]["name"].find("-2-") > 0]
        last["spec"]["nodeName"] = ""
        case.server.put("pods", last)
    case.server.change_pod(2, conditions=[scheduled])
    until(lambda: "0/3 nodes" in case.seen().why)


def test_a_gang_that_holds_nodes_without_getting_all_releases_them_and_tries_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
):
    hold_two_of_three(case, monkeypatch)
    assert case.seen().state is GangState.QUEUED
    placed = case.folder / "nodes" / GANG.key / "placed-0"
    placed.touch()
    until(lambda: "holds no nodes until it tries again: 0/3 nodes" in case.seen().why)
    until(lambda: not case.server.of("pods"))
    until(lambda: case.seen().state is GangState.UP)
    assert not placed.exists()


def test_a_gang_holds_nodes_while_an_autoscaler_may_add_others(
    case: Case, monkeypatch: pytest.MonkeyPatch
):
    case.server.fail("GET", "cluster-autoscaler-status", answers(200, "it is there"))
    hold_two_of_three(case, monkeypatch)
    assert [case.seen().why for _ in range(3)] == ["Kubernetes: 0/3 nodes are available"] * 3
    assert not case.server.faults
    assert not any(job["spec"]["suspend"] for job in case.server.of("jobs"))
    # Its time is up at last.
    monkeypatch.setattr("allranks.engines.kubernetes.manifest.HOLD", 0.0)
    until(lambda: "holds no nodes" in case.seen().why)


def test_a_gang_that_releases_its_nodes_tries_again_though_one_of_them_is_dead(
    case: Case, monkeypatch: pytest.MonkeyPatch
):
    """Its pod is not confirmed gone before the node is back."""
    hold_two_of_three(case, monkeypatch)
    case.server.kill_node("n0")
    conditions = [
        {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "True"},
    ]
    case.server.change_pod(0, phase="Running", conditions=conditions)
    until(lambda: "holds no nodes until it tries again: 0/3 nodes" in case.seen().why)
    until(lambda: case.seen().state is GangState.UP)
    assert [pod["metadata"].get("deletionTimestamp") for pod in case.server.of("pods")] == [
        None
    ] * 3


# ------------------------------------------------------------ nodes that die while a pod starts


@pytest.mark.parametrize("fault", [answers(500), answers(403), answers(404), cuts])
def test_no_node_is_down_while_the_cluster_does_not_say_so(
    case: Case, monkeypatch: pytest.MonkeyPatch, fault: api_server.Fault
):
    """What it said of the node before is as old as the last pod that was slow to start."""
    for name in ("_STARTING", "_LOOKS"):
        monkeypatch.setattr(f"allranks.engines.kubernetes.engine.{name}", 0.0)
    case.start()
    case.server.change_pod(0, phase="Pending", containerStatuses=[])
    case.server.kill_node("n0")
    until(lambda: case.seen().lost == (0,))
    case.server.revive_node("n0")
    case.server.fail("GET", "/api/v1/nodes", *[fault] * 5)
    seen = case.seen()
    assert (seen.state, seen.lost) == (GangState.PROVISIONING, ())
    assert len(case.server.faults) < 5


# ------------------------------------------------------------ the compute


def test_a_check_names_missing_rights(case: Case):
    options = {**NEEDS, **api_server.kubeconfig(case.folder, case.server)}
    case.engine.check(options)
    case.server.denied = {("create", "secrets"), ("watch", "pods")}
    with pytest.raises(Refused, match="watch pods, create secrets") as caught:
        case.engine.check(options)
    assert "team" in caught.value.message


def test_a_check_asks_for_an_image_which_every_pod_needs(case: Case):
    options = {**NEEDS, **api_server.kubeconfig(case.folder, case.server), "image": ""}
    with pytest.raises(Refused) as caught:
        case.engine.check(options)
    assert caught.value.where == "image"
    assert caught.value.hint


def test_a_namespace_that_cannot_be_is_refused_before_the_cluster_is_asked(case: Case):
    options = {**NEEDS, **api_server.kubeconfig(case.folder, case.server), "namespace": "A_b"}
    with pytest.raises(Refused, match="'A_b' is not valid") as caught:
        case.engine.check(options)
    assert (caught.value.where, case.server.requests) == ("namespace", [])


def test_a_wrong_token_is_an_error_with_a_hint_and_no_fault_of_a_job(case: Case):
    engine = engine_at(case.server, case.folder, "wrong")
    with pytest.raises(Refused, match="denies access") as caught:
        engine.check({**NEEDS, **api_server.kubeconfig(case.folder, case.server, "wrong")})
    assert "log in" in str(caught.value.hint)
    with pytest.raises(EngineError, match="denies access") as later:
        engine.submit(GANG)
    assert not isinstance(later.value, Refused)


QUOTA = (
    'jobs.batch "allranks-check" is forbidden: exceeded quota: team, requested: '
    "count/jobs.batch=1, used: count/jobs.batch=3, limited: count/jobs.batch=3"
)


def test_a_quota_is_no_missing_right_and_a_compute_may_be_created_while_it_is_used_up(case: Case):
    options = {**NEEDS, **api_server.kubeconfig(case.folder, case.server)}
    case.server.fail("POST", "/jobs", *[api_server.answers(403, QUOTA)] * 2)
    note = case.engine.check(options)
    said = "the quota 'team' of the namespace is used up: requested count/jobs.batch=1, used "
    assert note == f"jobs will wait: {said}count/jobs.batch=3, limited count/jobs.batch=3"
    with pytest.raises(EngineError) as later:
        case.engine.submit(GANG)
    assert (isinstance(later.value, Refused), said in later.value.message) == (False, True)
    assert "kubectl describe quota" in str(later.value.hint)
    assert case.engine.check(options) is None


def test_an_invalid_manifest_is_refused_with_a_hint_at_the_options(case: Case):
    invalid = 'Job.batch "x" is invalid: metadata.labels: Invalid value: "a b"'
    case.server.fail("POST", "/jobs", api_server.answers(422, invalid))
    with pytest.raises(Refused) as caught:
        case.engine.submit(GANG)
    assert caught.value.message == invalid
    assert "resources.properties.kubernetes" in str(caught.value.hint)


def test_a_context_that_is_not_there(case: Case):
    options = {**NEEDS, **api_server.kubeconfig(case.folder, case.server), "context": "prod"}
    with pytest.raises(Refused, match="has no context 'prod'") as caught:
        case.engine.check(options)
    assert caught.value.hint == "contexts of this file: x, y"


def test_a_program_for_credentials_that_is_gone_is_no_fault_of_a_job(case: Case):
    options = api_server.kubeconfig(case.folder, case.server)
    path = Path(options["kubeconfig"])
    user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin}"
    path.write_text(path.read_text().replace(f"token: {api_server.TOKEN}", user))
    with pytest.raises(EngineError, match=r"`no-such-plugin`.* is not installed") as caught:
        case.engine.submit(GANG)
    assert not isinstance(caught.value, Refused)


def test_a_context_has_a_namespace(case: Case):
    options = {**api_server.kubeconfig(case.folder, case.server), "context": "y"}
    engine = KubernetesEngine(case.folder, case.folder / "e", case.folder / "n", options)
    engine.submit(GANG)
    assert any("/namespaces/default/" in path for _, path in case.server.requests)


def test_a_credential_plugin_is_run(case: Case):
    plugin = case.folder / "plugin"
    credential = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
        f'"status": {{"token": "{api_server.TOKEN}"}}}}'
    )
    plugin.write_text(f"#!/bin/sh\necho '{credential}'\n")
    plugin.chmod(0o755)
    options = api_server.kubeconfig(case.folder, case.server)
    path = Path(options["kubeconfig"])
    user = f"exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}}}"
    path.write_text(path.read_text().replace(f"token: {api_server.TOKEN}", user))
    case.engine.submit(GANG)
    assert len(case.server.of("pods")) == 3


def test_hosts_are_the_nodes_that_the_options_select(case: Case):
    options = api_server.kubeconfig(case.folder, case.server)
    hosts = case.engine.hosts(options)
    assert [(host.name, host.cpus, host.memory) for host in hosts] == [
        (f"n{number}", 1.0, 4 << 30) for number in range(4)
    ]
    only = case.engine.hosts({**options, "node_selector": ["disk=ssd"]})
    assert [host.name for host in only] == ["n0"]


def test_what_is_free_is_unknown_without_the_right_to_list_all_pods(case: Case):
    options = api_server.kubeconfig(case.folder, case.server)
    case.server.fail("GET", "/api/v1/pods", answers(403, "forbidden"))
    unknown, known = case.engine.hosts(options)[0], case.engine.hosts(options)[0]
    assert (unknown.cpus, unknown.free_cpus, unknown.free_gpus) == (1.0, None, None)
    assert (known.free_cpus, known.free_gpus) == (1.0, 0)


def test_a_job_is_refused_for_its_size_without_a_sign_of_an_autoscaler(case: Case):
    """The printed role does not read the status of the cluster autoscaler: a denial is no sign."""
    large = GANG._replace(nodes=5)
    case.server.fail("GET", "cluster-autoscaler-status", answers(403, "forbidden"))
    for _ in range(2):  # denied, then not there
        with pytest.raises(Refused, match="4 available") as caught:
            case.engine.admit(large)
        assert "--autoscaling" in str(caught.value.hint)
    case.server.fail("GET", "cluster-autoscaler-status", answers(200, "it is there"))
    case.engine.admit(large)
    case.engine.admit(large._replace(options={**NEEDS, "autoscaling": True}))
    case.server.fail("GET", "cluster-autoscaler-status", answers(200, "it is there"))
    with pytest.raises(Refused, match="4 available"):
        case.engine.admit(large._replace(options={**NEEDS, "autoscaling": False}))
    assert len(case.server.faults) == 1


@pytest.mark.parametrize(
    ("changes", "selector", "said", "hint"),
    [
        (
            {"nodes": 1, "cpus": 64.0, "memory": 3 << 29, "gpus": 8},
            [],
            "it needs 1 node with 64 CPUs, 1.5 GiB of memory and 8 nvidia.com/gpu, 0 available",
            "request fewer nodes",
        ),
        (
            {"cpus": 0.2},
            ["gpu=h100", "zone=a"],
            "no node of it has the labels gpu=h100 and zone=a",
            "kubectl get nodes --show-labels",
        ),
        (
            {"cpus": 0.8},
            ["disk=ssd"],
            "it needs 3 nodes with 0.8 CPUs and the label disk=ssd each, 1 available",
            "request fewer nodes",
        ),
    ],
)
def test_a_refusal_says_what_is_missing_as_people_write_it(
    case: Case, changes: dict[str, Any], selector: list[str], said: str, hint: str
):
    gang = GANG._replace(**changes, options={**NEEDS, "node_selector": selector})
    with pytest.raises(Refused) as caught:
        case.engine.admit(gang)
    assert caught.value.message == f"the job can never run on this cluster: {said}"
    assert hint in str(caught.value.hint)
    assert "--autoscaling" in str(caught.value.hint)
    place = "node_selector" if "no node" in said else "resources"
    assert caught.value.where == place


def test_without_the_client_library_the_hint_names_the_extra(
    case: Case, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    engine = engine_at(case.server, case.folder)
    with pytest.raises(Refused, match="not installed") as caught:
        engine.check({**NEEDS, **api_server.kubeconfig(case.folder, case.server)})
    assert "allranks[kubernetes]" in str(caught.value.hint)
