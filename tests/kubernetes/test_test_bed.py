"""The cluster that the other tests here run on is one: pods run, nodes vanish and come back."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.containers import registry
from tests.kubernetes import images
from tests.kubernetes.bed import Kubernetes, free_number
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]

# Pod I listens, and asks pod I + 1 for its name until that one answers.
RING = """
import os, socket, threading, time
number, service = int(os.environ["JOB_COMPLETION_INDEX"]), os.environ["SERVICE"]
server = socket.create_server((os.environ["POD_IP"], 7000))
def answer():
    while True:
        server.accept()[0].sendall(f"{socket.gethostname()} on {os.environ['NODE']}".encode())
threading.Thread(target=answer, daemon=True).start()
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        peer = socket.create_connection((f"ring-{(number + 1) % 3}.{service}", 7000), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
print(number, "heard", peer.makefile().read(), flush=True)
time.sleep(2)
"""


def container(*command: str, **more: object) -> dict[str, object]:
    return {"name": "main", "image": "localhost/trainer:1", "command": command, **more}


def pod(name: str, *containers: Mapping[str, object], **more: object) -> dict[str, object]:
    spec = {"restartPolicy": "Never", "containers": containers, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def field(name: str, path: str) -> dict[str, object]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


# With the pod's own account, as any client inside a cluster does; then back to this machine.
INSIDE = """
import os, socket, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
host = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
headers = {"Authorization": "Bearer " + open(folder + "token").read()}
request = urllib.request.Request(f"https://{host}/version", headers=headers)
trusted = ssl.create_default_context(cafile=folder + "ca.crt")
print(urllib.request.urlopen(request, context=trusted).status, flush=True)
socket.create_connection((os.environ["MACHINE"], int(os.environ["PORT"]))).sendall(b"from a pod")
"""


class Pods:
    """The pods of one namespace."""

    def __init__(self, kubernetes: Kubernetes, namespace: str) -> None:
        self.kubernetes, self.path = kubernetes, f"api/v1/namespaces/{namespace}/pods"

    def start(self, name: str, *command: str, **more: object) -> None:
        self.kubernetes.create(self.path, pod(name, container(*command), **more))

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.kubernetes.get(f"{self.path}/{name}")["status"])

    def phase(self, name: str) -> str:
        return str(self.status(name)["phase"])

    def ended(self, name: str) -> dict[str, Any]:
        """How the container ended, once it has."""
        until(lambda: self.phase(name) in ("Succeeded", "Failed"), seconds=30)
        return dict(self.status(name)["containerStatuses"][0]["state"]["terminated"])

    def condition(self, name: str, kind: str) -> dict[str, str]:
        found = [each for each in self.status(name).get("conditions", ()) if each["type"] == kind]
        return dict(found[0]) if found else {}

    def waits_because(self, name: str) -> str:
        statuses: Sequence[dict[str, Any]] = self.status(name).get("containerStatuses", ())
        return str(statuses[0]["state"].get("waiting", {}).get("reason")) if statuses else ""


@pytest.fixture
def pods(kubernetes: Kubernetes, namespace: str) -> Pods:
    return Pods(kubernetes, namespace)


def test_pods_of_an_indexed_job_find_one_another_by_name(kubernetes: Kubernetes, namespace: str):
    env = [field("POD_IP", "status.podIP"), field("NODE", "spec.nodeName")]
    rank = container("python3", "-c", RING, env=[*env, {"name": "SERVICE", "value": "peers"}])
    apart = {
        "labelSelector": {"matchLabels": {"app": "ring"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    template = {
        "metadata": {"labels": {"app": "ring"}},
        "spec": {
            "subdomain": "peers",
            "restartPolicy": "Never",
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
            },
            "containers": [rank],
        },
    }
    size = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimit": 0}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ring"}}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "ring"}}
    kubernetes.create(
        f"api/v1/namespaces/{namespace}/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": service},
    )
    jobs = f"apis/batch/v1/namespaces/{namespace}/jobs"
    kubernetes.create(jobs, {**job, "spec": {**size, "template": template}})
    until(lambda: kubernetes.get(f"{jobs}/ring")["status"].get("succeeded") == 3, seconds=60)
    found = kubernetes.get(f"api/v1/namespaces/{namespace}/pods")["items"]
    lines = {kubernetes.log(namespace, each["metadata"]["name"]).strip() for each in found}
    where = {each["spec"]["hostname"]: each["spec"]["nodeName"] for each in found}
    assert sorted(where.values()) == ["node-0", "node-1", "node-2"]
    names = ["ring-0", "ring-1", "ring-2"]
    assert lines == {
        f"{number} heard {name} on {where[name]}"
        for number, name in enumerate([*names[1:], names[0]])
    }


def test_a_pod_reaches_the_api_server_and_this_machine(
    pods: Pods, kubernetes: Kubernetes, namespace: str
):
    with socket.create_server((kubernetes.machine, 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        env = {"MACHINE": kubernetes.machine, "PORT": str(port)}
        variables = [{"name": name, "value": value} for name, value in env.items()]
        kubernetes.create(pods.path, pod("in", container("python3", "-c", INSIDE, env=variables)))
        connection, (address, _) = server.accept()
        with connection:
            assert connection.makefile().read() == "from a pod"
    assert pods.ended("in")["exitCode"] == 0
    assert kubernetes.log(namespace, "in") == "200\n"
    assert address == pods.status("in")["podIP"]


def test_exit_codes_are_reported(pods: Pods):
    pods.start("good", "bash", "-c", "exit 0")
    pods.start("bad", "bash", "-c", "exit 7")
    assert pods.ended("good")["reason"] == "Completed"
    ended = pods.ended("bad")
    assert (ended["reason"], ended["exitCode"], pods.phase("bad")) == ("Error", 7, "Failed")


def test_a_container_that_takes_too_much_memory_is_killed(pods: Pods):
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    greedy = container("python3", "-c", "all = bytearray(2**30)", **limits)
    pods.kubernetes.create(pods.path, pod("greedy", greedy))
    ended = pods.ended("greedy")
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def test_a_deleted_pod_gets_sigterm_and_its_grace(
    pods: Pods, kubernetes: Kubernetes, namespace: str
):
    pods.start(
        "polite", "bash", "-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    )
    until(lambda: pods.phase("polite") == "Running" and "up" in kubernetes.log(namespace, "polite"))
    # Without the finalizer the pod's end could not be looked at.
    meta = {"metadata": {"finalizers": ["example.com/looked-at"]}}
    kubernetes.patch(f"{pods.path}/polite", meta)
    kubernetes.delete(f"{pods.path}/polite")
    ended = pods.ended("polite")
    assert (ended["exitCode"], kubernetes.log(namespace, "polite")) == (3, "up\nbye\n")
    kubernetes.patch(f"{pods.path}/polite", {"metadata": {"finalizers": None}})
    until(lambda: kubernetes.api.get(f"{pods.path}/polite").status_code == 404)


def test_init_containers_come_first_and_hand_on_a_volume(
    pods: Pods, kubernetes: Kubernetes, namespace: str
):
    mounts = {"volumeMounts": [{"name": "given", "mountPath": "/given"}]}
    first = container("bash", "-c", "echo from the first > /given/it", **mounts) | {"name": "first"}
    then = container("cat", "/given/it", **mounts)
    volumes = [{"name": "given", "emptyDir": {"medium": "Memory"}}]
    kubernetes.create(pods.path, pod("two", then, initContainers=[first], volumes=volumes))
    assert pods.ended("two")["exitCode"] == 0
    assert kubernetes.log(namespace, "two") == "from the first\n"


def test_a_pod_that_fits_nowhere_says_so_in_the_schedulers_words(
    pods: Pods, kubernetes: Kubernetes
):
    wants = {"resources": {"requests": {"cpu": "1000"}}}
    kubernetes.create(pods.path, pod("large", container("bash", **wants)))
    until(lambda: pods.condition("large", "PodScheduled").get("reason") == "Unschedulable")
    said = pods.condition("large", "PodScheduled")["message"]
    assert said.startswith("0/3 nodes are available: 3 Insufficient cpu.")


def test_an_image_of_a_tests_own(pods: Pods, kubernetes: Kubernetes, tmp_path: Path):
    name = "localhost/bare:1"  # no shell, no Python
    program = Path(kubernetes.control_plane("binaries")) / "pause"
    images.write_pause(tmp_path / "bare.tar", program, name)
    kubernetes.nodes("load", tmp_path / "bare.tar")
    bare = {"name": "main", "image": name}
    kubernetes.create(pods.path, pod("bare", bare, nodeName="node-2"))
    until(lambda: pods.phase("bare") == "Running")


def test_an_image_is_pulled_with_the_secret_of_its_registry(
    pods: Pods, kubernetes: Kubernetes, namespace: str, tmp_path: Path
):
    program = Path(kubernetes.control_plane("binaries")) / "pause"
    images.write_pause(tmp_path / "pulled.tar", program)
    (tmp_path / "pushed").mkdir()
    images.push(tmp_path / "pulled.tar", tmp_path / "pushed")
    account = "robot:tell-nobody"
    with registry.serving(tmp_path / "pushed", kubernetes.registry, account) as (name, gate):
        gate.set()
        server = name.partition("/")[0]
        logins = {"auths": {server: {"auth": base64.b64encode(account.encode()).decode()}}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}}
        secret |= {"type": "kubernetes.io/dockerconfigjson"}
        secret |= {"stringData": {".dockerconfigjson": json.dumps(logins)}}
        kubernetes.create(f"api/v1/namespaces/{namespace}/secrets", secret)
        main = {"name": "main", "image": f"{name}:1"}
        kubernetes.create(pods.path, pod("stranger", main))
        until(lambda: pods.waits_because("stranger") in ("ErrImagePull", "ImagePullBackOff"))
        kubernetes.create(pods.path, pod("known", main, imagePullSecrets=[{"name": "login"}]))
        until(lambda: pods.phase("known") == "Running")
        assert pods.phase("stranger") == "Pending"


def test_an_image_for_another_architecture(
    pods: Pods, kubernetes: Kubernetes, namespace: str, tmp_path: Path
):
    program = Path(kubernetes.control_plane("binaries")) / "pause"
    images.write_foreign(tmp_path / "foreign.tar", program, "localhost/foreign:1")
    kubernetes.nodes("load", tmp_path / "foreign.tar")
    foreign = {"name": "main", "image": "localhost/foreign:1"}
    kubernetes.create(pods.path, pod("foreign", foreign))
    assert pods.ended("foreign")["reason"] == "Error"
    assert "exec format error" in kubernetes.log(namespace, "foreign")


def test_a_pod_on_its_nodes_network_has_the_nodes_name(
    pods: Pods, kubernetes: Kubernetes, namespace: str
):
    told = "import socket as s; name = s.gethostname(); print(name, s.gethostbyname(name))"
    content = pod("near", container("python3", "-c", told), hostNetwork=True, nodeName="node-1")
    kubernetes.create(pods.path, content)
    assert pods.ended("near")["exitCode"] == 0
    address = pods.status("near")["hostIP"]
    assert kubernetes.log(namespace, "near") == f"node-1 {address}\n"


def test_an_image_that_is_not_there(pods: Pods, kubernetes: Kubernetes):
    kubernetes.create(pods.path, pod("lost", container("bash") | {"image": "localhost/missing:1"}))
    until(lambda: pods.waits_because("lost") == "ImagePullBackOff", seconds=60)


def test_an_evicted_pod_says_why(pods: Pods, kubernetes: Kubernetes, namespace: str):
    pods.start("moved", "sleep", "600", terminationGracePeriodSeconds=1)
    until(lambda: pods.phase("moved") == "Running")
    kubernetes.patch(f"{pods.path}/moved", {"metadata": {"finalizers": ["example.com/looked-at"]}})
    kubernetes.evict(namespace, "moved")
    until(lambda: pods.phase("moved") == "Failed", seconds=30)
    assert pods.condition("moved", "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    kubernetes.patch(f"{pods.path}/moved", {"metadata": {"finalizers": None}})


def test_an_important_pod_takes_the_place_of_another(
    pods: Pods, kubernetes: Kubernetes, namespace: str
):
    kubernetes.offer("node-1", "example.com/accelerator", 1)
    one = {"resources": {"limits": {"example.com/accelerator": "1"}}}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    classes = "apis/scheduling.k8s.io/v1/priorityclasses"
    kubernetes.create(classes, {**kind, "metadata": {"name": namespace}})
    kubernetes.create(
        pods.path, pod("low", container("sleep", "600", **one), terminationGracePeriodSeconds=1)
    )
    until(lambda: pods.phase("low") == "Running")
    kubernetes.patch(f"{pods.path}/low", {"metadata": {"finalizers": ["example.com/looked-at"]}})
    high = pod("high", container("bash", "-c", "exit 0", **one), priorityClassName=namespace)
    kubernetes.create(pods.path, high)
    until(
        lambda: pods.condition("low", "DisruptionTarget").get("reason") == "PreemptionByScheduler"
    )
    kubernetes.patch(f"{pods.path}/low", {"metadata": {"finalizers": None}})
    assert pods.ended("high")["exitCode"] == 0
    kubernetes.delete(f"{classes}/{namespace}")


@pytest.mark.parametrize("how", ["kill", "cut", "kill-kubelet"])
def test_a_node_that_is_lost_is_noticed_and_comes_back(
    pods: Pods, kubernetes: Kubernetes, how: str
):
    pods.start("there", "sleep", "600", nodeName="node-2", terminationGracePeriodSeconds=1)
    until(lambda: pods.phase("there") == "Running")
    kubernetes.nodes(how, "node-2")
    until(lambda: kubernetes.ready("node-2") == "Unknown", seconds=40)
    until(lambda: pods.condition("there", "Ready")["status"] == "False")
    # A machine that stands still for a moment loses them all; only for a moment.
    until(lambda: kubernetes.ready("node-0") == kubernetes.ready("node-1") == "True", seconds=2)
    kubernetes.nodes("heal", "node-2")
    assert kubernetes.ready("node-2") == "True"
    if how == "kill":
        assert pods.ended("there")["exitCode"] != 0
    else:
        until(lambda: pods.condition("there", "Ready")["status"] == "True")


def test_an_api_server_that_stands_still_goes_on(pods: Pods, kubernetes: Kubernetes):
    pods.start("through", "sleep", "600", terminationGracePeriodSeconds=1)
    until(lambda: pods.phase("through") == "Running")
    kubernetes.control_plane("pause")
    with pytest.raises(httpx.TimeoutException):
        kubernetes.api.get("readyz", timeout=0.5)
    kubernetes.control_plane("resume")
    assert pods.phase("through") == "Running"


def test_two_clusters_never_have_one_number(tmp_path: Path):
    with free_number(tmp_path, tmp_path) as one, free_number(tmp_path, tmp_path) as other:
        assert one != other
    with free_number(tmp_path, tmp_path) as again:
        assert again == one
