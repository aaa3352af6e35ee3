"""The Kubernetes engine on a real one: three nodes with real kubelets, which live and die alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import MARKER, GangStatus, Handle
from allranks.engines.kubernetes.engine import KubernetesEngine
from allranks.errors import EngineError, Refused
from allranks.statuses import GangState, Reason
from tests.containers.image import PYTHON
from tests.engines.contract import Case, Contract, sleeper
from tests.kubernetes.bed import Kubernetes
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(400)]
SECONDS = 60.0
NEEDS = {"image": "localhost/trainer:1", "home_volume": "host", "autoscaling": False}


def options_of(kubernetes: Kubernetes, namespace: str) -> dict[str, Any]:
    return {"kubeconfig": str(kubernetes.kubeconfig), "namespace": namespace}


def engine_of(kubernetes: Kubernetes, namespace: str, folder: Path) -> KubernetesEngine:
    options = options_of(kubernetes, namespace)
    return KubernetesEngine(folder, folder / "engines" / "kubernetes", folder / "nodes", options)


def marked(marker: str) -> list[int]:
    """The processes of this machine, and so of all nodes, with that in their environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (each / "environ").read_bytes().split(b"\0"):
                found.append(int(each.name))
        except OSError:
            continue
    return sorted(found)


@pytest.fixture
def case(kubernetes: Kubernetes, namespace: str, tmp_path: Path) -> Iterator[Case]:
    gang = sleeper(f"{tmp_path.name}.1")
    gang = gang._replace(env={"SECRET": "a $(HOME) 'x"}, cpus=1.5, grace=1, options=NEEDS)
    engine = engine_of(kubernetes, namespace, tmp_path)
    found = Case(
        engine,
        gang,
        lambda: engine_of(kubernetes, namespace, tmp_path),
        lambda: marked(f"{MARKER}={engine.mark(gang.key)}"),
        room=3,
        seconds=SECONDS,
    )
    yield found
    engine.stop(Handle(gang.key))
    found.is_gone()


def says(case: Case, script: str, **needs: object) -> Gang:
    """The gang with three nodes whose agents run that."""
    return case.gang._replace(nodes=3, argv=("python3", "-c", script), **needs)


def seen(case: Case) -> GangStatus:
    return case.engine.poll([Handle(case.gang.key)])[case.gang.key]


class TestTheKubernetesEngine(Contract):
    """All that the contract says."""


@pytest.mark.end_to_end
def test_each_agent_has_a_node_and_is_told_what_an_agent_is_told(case: Case, tmp_path: Path):
    script = (
        "import json, os, socket; here = dict(os.environ, HOST=socket.gethostname()); "
        "json.dump(here, open('told', 'w'))"
    )
    case.engine.submit(says(case, script))
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert seen(case).reason is None
    told = [
        json.loads((tmp_path / "nodes" / case.gang.key / str(node) / "told").read_text())
        for node in range(3)
    ]
    assert len({each["ALLRANKS_AGENT_ADDRESS"] for each in told}) == 3
    for node, each in enumerate(told):
        assert each["HOST"] == f"{each['HOST'].rpartition('-')[0]}-{node}"
        assert each["ALLRANKS_AGENT_NODE"] == str(node)
        assert each["ALLRANKS_AGENT_DIR"].endswith(f"{case.gang.key}/{node}")
        assert each["ALLRANKS_AGENT_CPUS"] == "2"
        assert each["SECRET"] == "a $(HOME) 'x"


def test_agents_are_sent_along_and_the_image_needs_none(case: Case):
    case.engine.submit(says(case, "")._replace(argv=("python", "-P", "-m", "allranks.agent")))
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert "'ALLRANKS_AGENT_URL' is missing" in seen(case).why
    assert seen(case).reason is Reason.SETUP_FAILED


def test_nothing_of_a_gang_is_left_in_the_cluster(case: Case, kubernetes: Kubernetes):
    case.engine.submit(case.gang)
    case.engine.stop(Handle(case.gang.key))
    case.is_gone()
    space = case.engine._api.namespace

    def left() -> list[str]:
        paths = [f"apis/batch/v1/namespaces/{space}/jobs"]
        paths += [f"api/v1/namespaces/{space}/{kind}" for kind in ("pods", "secrets", "services")]
        return [
            each["metadata"]["name"] for path in paths for each in kubernetes.get(path)["items"]
        ]

    until(lambda: not left(), SECONDS)


def test_a_deleted_pod_is_a_lost_node_that_is_not_started_again(case: Case, kubernetes: Kubernetes):
    gang = says(case, "import time; time.sleep(120)")
    case.engine.submit(gang)
    until(lambda: seen(case).state is GangState.UP, SECONDS)
    path = f"api/v1/namespaces/{case.engine._api.namespace}/pods"
    name = next(
        p["metadata"]["name"]
        for p in kubernetes.get(path)["items"]
        if "-1-" in p["metadata"]["name"][-8:]
    )
    kubernetes.delete(f"{path}/{name}")
    until(lambda: seen(case).lost == (1,), SECONDS)
    assert seen(case).state is GangState.UP
    assert len(case.processes()) == 2


def test_an_evicted_gang_was_preempted(case: Case, kubernetes: Kubernetes):
    case.engine.submit(case.gang)
    until(lambda: seen(case).state is GangState.UP, SECONDS)
    space = case.engine._api.namespace
    for pod in kubernetes.get(f"api/v1/namespaces/{space}/pods")["items"]:
        kubernetes.evict(space, pod["metadata"]["name"])
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert seen(case).reason is Reason.PREEMPTED


def test_a_node_without_power_is_lost_and_the_gang_can_be_stopped(
    case: Case, kubernetes: Kubernetes
):
    case.engine.submit(says(case, "import time; time.sleep(300)"))
    until(lambda: seen(case).state is GangState.UP, SECONDS)
    kubernetes.nodes("kill", "node-2")
    until(lambda: len(seen(case).lost) == 1, SECONDS)
    assert seen(case).state is GangState.UP
    began = time.monotonic()
    case.engine.stop(Handle(case.gang.key))
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert time.monotonic() - began < 30
    kubernetes.nodes("heal", "node-2")


def test_a_node_that_dies_while_its_pod_starts_is_lost(case: Case, kubernetes: Kubernetes):
    """Its pod stays Pending in the cluster's eyes, for five minutes or for ever."""
    kubernetes.nodes("kill-kubelet", "node-2")
    script = "import time; time.sleep(300)"
    case.engine.submit(says(case, script, options={**NEEDS, "autoscaling": True}))
    until(lambda: len(seen(case).lost) == 1, SECONDS)
    assert seen(case).state is GangState.UP
    case.engine.stop(Handle(case.gang.key))
    until(lambda: seen(case).state is GangState.GONE, SECONDS)


def test_a_paused_api_server_is_unknown(case: Case, kubernetes: Kubernetes, monkeypatch: Any):
    monkeypatch.setattr("allranks.engines.kubernetes.api._TIMEOUT", (0.5, 0.5))
    case.engine.submit(case.gang)
    kubernetes.control_plane("pause")
    try:
        fresh = case.again()
        assert case.state(engine=fresh) is GangState.UNKNOWN
        with pytest.raises(EngineError):
            fresh.stop(Handle(case.gang.key))
    finally:
        kubernetes.control_plane("resume")
    until(lambda: case.state(engine=fresh) is GangState.UP, SECONDS)


def test_an_agents_python_comes_from_an_image_of_its_own(case: Case, tmp_path: Path):
    """Copied to another path, so that it may not look for itself where it was built."""
    script = "import sys, ssl, ctypes; open('told', 'w').write(f'{sys.executable} {sys.prefix}')"
    prefix = str(Path(PYTHON).parent)
    options = {**NEEDS, "agent_image": "localhost/trainer:1", "agent_python": prefix}
    case.engine.submit(says(case, script, options={**options, "python": "/no/such/python"}))
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    told = tmp_path / "nodes" / case.gang.key / "0" / "told"
    assert told.read_text() == "/allranks/python/bin/python3 /allranks/python"


def test_a_pod_of_higher_priority_takes_the_place(case: Case, kubernetes: Kubernetes):
    case.engine.submit(says(case, "import time; time.sleep(300)"))
    until(lambda: seen(case).state is GangState.UP, SECONDS)
    name = case.engine._api.namespace
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    classes = "apis/scheduling.k8s.io/v1/priorityclasses"
    kubernetes.create(classes, {**urgent, "metadata": {"name": name}})
    try:
        wants = {"resources": {"requests": {"cpu": "1500m"}}, "command": ["sleep", "60"]}
        spec = {
            "priorityClassName": name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "localhost/trainer:1", **wants}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": spec}
        kubernetes.create(f"api/v1/namespaces/{name}/pods", pod)
        until(lambda: len(seen(case).lost) == 1, SECONDS)
        case.engine.stop(Handle(case.gang.key))
        until(lambda: seen(case).state is GangState.GONE, SECONDS)
    finally:
        kubernetes.delete(f"{classes}/{name}")


# ------------------------------------------------------------ why it waits, and why it ended


def waits(case: Case, words: str, state: GangState = GangState.QUEUED, **options: Any) -> None:
    case.engine.submit(case.gang._replace(options={**NEEDS, **options}))
    until(lambda: words in seen(case).why, SECONDS)
    assert seen(case).state is state


def test_the_schedulers_words(case: Case):
    waits(
        case,
        "didn't match Pod's node affinity/selector",
        node_selector=["disk=ssd"],
        autoscaling=True,
    )


@pytest.mark.parametrize(
    ("reason", "source", "message"),
    [
        (
            "TriggeredScaleUp",
            "cluster-autoscaler",
            "pod triggered scale-up: [{a 1->2 (max: 5)}]",
        ),
        ("NotTriggerScaleUp", "cluster-autoscaler", "pod didn't trigger scale-up: 1 max reached"),
        ("Nominated", "karpenter", "Pod should schedule on: nodeclaim/default-x7k2p"),
        ("FailedScheduling", "karpenter", "Failed to schedule pod, no instance type satisfied"),
    ],
)
def test_what_an_autoscaler_says(
    case: Case,
    kubernetes: Kubernetes,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    source: str,
    message: str,
):
    """There is none in this cluster: its events are created as it would create them."""
    monkeypatch.setattr("allranks.engines.kubernetes.engine._WARNINGS", 1.0)
    selector = {"node_selector": ["disk=ssd"], "autoscaling": True}
    waits(case, "didn't match Pod's node affinity/selector", **selector)
    space = case.engine._api.namespace
    pod = kubernetes.get(f"api/v1/namespaces/{space}/pods")["items"][0]["metadata"]["name"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    kubernetes.create(
        f"api/v1/namespaces/{space}/events",
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod}.1"},
            "involvedObject": {"kind": "Pod", "name": pod, "namespace": space},
            "reason": reason,
            "type": "Normal",
            "message": message,
            "source": {"component": source},
            "firstTimestamp": now,
            "lastTimestamp": now,
        },
    )
    until(lambda: seen(case).why.endswith(f"; the autoscaler: {message}"), SECONDS)
    assert "node affinity/selector" in seen(case).why
    assert seen(case).state is GangState.QUEUED


def test_an_image_that_does_not_exist(case: Case):
    waits(case, "localhost/no-such:1", GangState.PROVISIONING, image="localhost/no-such:1")
    assert "Image" in seen(case).why


def test_a_quota_that_is_used_up_now(case: Case, kubernetes: Kubernetes):
    """The gang does not keep the pod that it gets: others may need it."""
    space = case.engine._api.namespace
    kubernetes.fill(space)
    kubernetes.limit(space, {"pods": "2"})
    waits(case, "holds no nodes until it tries again: pods are refused: exceeded quota: team")


def test_a_quota_that_can_never_hold_it(case: Case, kubernetes: Kubernetes, monkeypatch: Any):
    kubernetes.limit(case.engine._api.namespace, {"cpu": "2"})
    words = "the quota 'team' of the namespace can never hold it: requested 2 times cpu=1500m"
    with pytest.raises(Refused, match=words):
        case.engine.submit(case.gang)
    # Without the right to list quotas, the first pod that is refused says it.
    monkeypatch.setattr("allranks.engines.kubernetes.cluster.quota_excess", lambda *_: None)
    case.engine.submit(case.gang)
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert seen(case).reason is Reason.GANG_REFUSED
    assert words in seen(case).why


def test_a_gang_that_does_not_fit_now_holds_nothing(case: Case, kubernetes: Kubernetes):
    """Two of three nodes are taken: it gets one, and the scheduler refuses the other."""
    other = says(case, "import time; time.sleep(300)")._replace(key="other.1", nodes=2)
    case.engine.submit(other)
    until(lambda: case.state(other.key) is GangState.UP, SECONDS)
    options = {name: value for name, value in NEEDS.items() if name != "autoscaling"}
    case.engine.submit(case.gang._replace(options=options))
    until(lambda: "holds no nodes until it tries again: 0/3 nodes" in seen(case).why, SECONDS)
    case.engine.stop(Handle(other.key))
    until(lambda: seen(case).state is GangState.UP, SECONDS)


def test_a_program_that_takes_too_much_memory(case: Case):
    script = "import time; a = bytearray(600 << 20); time.sleep(60)"
    gang = case.gang._replace(argv=("python3", "-c", script), memory=64 << 20)
    case.engine.submit(gang)
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert seen(case).reason is Reason.OUT_OF_MEMORY


def test_a_deadline(case: Case):
    patch = {"spec": {"activeDeadlineSeconds": 2}}
    case.engine.submit(case.gang._replace(options={**NEEDS, "patch": patch}))
    until(lambda: seen(case).state is GangState.GONE, SECONDS)
    assert seen(case).reason is Reason.TIME_LIMIT


def test_a_bad_patch_is_refused_by_the_cluster_before_there_is_a_job(case: Case):
    options = {
        **NEEDS,
        **case.engine._api._options,
        "patch": {
            "spec": {"template": {"spec": {"containers": [{"name": "node", "imagee": "x"}]}}}
        },
    }
    with pytest.raises(Refused, match="imagee"):
        case.engine.check(options)


def test_two_gangs_that_block_each_other_both_run_one_after_the_other(case: Case):
    """Each gets a part of the three nodes; whoever holds them without getting all lets go."""
    # Room for one pod on each of three nodes: two gangs of two need four.
    script = "import time; time.sleep(4)"
    first = case.gang._replace(argv=("python3", "-c", script))
    second = first._replace(key="other.1")
    case.engine.submit(first)
    case.engine.submit(second)
    handles = [Handle(first.key), Handle(second.key)]
    ended: set[str] = set()

    def both_have_ended() -> bool:
        for key, each in case.engine.poll(handles).items():
            if each.state is GangState.GONE:
                assert each.reason is None, each
                ended.add(key)
        return len(ended) == 2

    try:
        until(both_have_ended, 90)
    finally:
        case.engine.stop(handles[1])
        until(lambda: case.state("other.1") is GangState.GONE, SECONDS)
