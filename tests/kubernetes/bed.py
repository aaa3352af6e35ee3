"""A real Kubernetes of several nodes on this machine: see the heads of `control_plane`, `nodes`."""

from __future__ import annotations

import fcntl
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.kubernetes import images
from tests.support import until

HERE = Path(__file__).parent
CONTROL_PLANE = HERE / "control_plane"
NODES = HERE / "nodes"
RESOLVER = HERE / "resolver.py"
# Of the addresses 198.18.NUMBER.0/24 the Slurm clusters of the tests take those below.
NUMBERS = range(60, 100)


class Kubernetes(NamedTuple):
    """``env`` is what both programs need; ``api`` is a client with all rights."""

    env: dict[str, str]
    folder: Path
    api: httpx.Client

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def machine(self) -> str:
        """The address by which pods reach what listens on this machine."""
        return f"198.18.{self.env['KUBE_ID']}.254"

    @property
    def registry(self) -> tuple[str, int]:
        """Where the nodes pull from without TLS, if a test starts a registry there."""
        return self.machine, 5000

    def control_plane(self, *words: object) -> str:
        """Run a command of `control_plane` (`pause`, `resume`); its output."""
        return _run([CONTROL_PLANE, *words], self.env)

    def nodes(self, *words: object) -> str:
        """Run a command of `nodes` (`kill node-1`, `exec node-2 hostname`); its output."""
        return _run([NODES, *words], self.env)

    def get(self, path: str, **params: str) -> Any:
        """An object or list; ``path`` begins with api/ or apis/."""
        return self._json("GET", path, params=params)

    def create(self, path: str, content: Mapping[str, object]) -> Any:
        return self._json("POST", path, json=content)

    def delete(self, path: str, **params: str) -> Any:
        return self._json("DELETE", path, params=params)

    def patch(self, path: str, content: Mapping[str, object]) -> Any:
        """A merge patch."""
        kind = {"Content-Type": "application/merge-patch+json"}
        return self._json("PATCH", path, json=content, headers=kind)

    def log(self, namespace: str, pod: str, **params: str) -> str:
        """What the pod's container printed, by way of API server and kubelet."""
        got = self.api.get(f"api/v1/namespaces/{namespace}/pods/{pod}/log", params=params)
        assert got.is_success, got.text
        return got.text

    def evict(self, namespace: str, pod: str) -> None:
        """What `kubectl drain` does to a pod."""
        meta = {"name": pod, "namespace": namespace}
        content = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        self.create(f"api/v1/namespaces/{namespace}/pods/{pod}/eviction", content)

    def fill(self, namespace: str, name: str = "filler") -> None:
        """Create a pod that does nothing for ten minutes, without CPUs or memory of its own."""
        container = {"name": "c", "image": "localhost/trainer:1", "command": ["sleep", "600"]}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.create(f"api/v1/namespaces/{namespace}/pods", pod)

    def limit(self, namespace: str, hard: Mapping[str, str]) -> str:
        """Create the quota `team`, and wait until it counts; its path."""
        quotas = f"api/v1/namespaces/{namespace}/resourcequotas"
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}}
        self.create(quotas, {**quota, "spec": {"hard": dict(hard)}})
        until(lambda: self.get(f"{quotas}/team")["status"].get("hard"))
        return f"{quotas}/team"

    def offer(self, node: str, resource: str, count: int) -> None:
        """Let a node have an extended resource such as nvidia.com/gpu; there are no devices."""
        self.patch(f"api/v1/nodes/{node}/status", {"status": {"capacity": {resource: str(count)}}})
        path = f"api/v1/nodes/{node}"
        until(lambda: self.get(path)["status"]["allocatable"].get(resource) == str(count))

    def ready(self, node: str) -> str:
        """The status of the node's condition Ready: True, False or Unknown."""
        conditions = self.get(f"api/v1/nodes/{node}")["status"]["conditions"]
        return str(next(each["status"] for each in conditions if each["type"] == "Ready"))

    def _json(self, method: str, path: str, **more: Any) -> Any:
        got = self.api.request(method, path, **more)
        assert got.is_success, got.text
        return got.json()


def _run(words: Sequence[object], env: Mapping[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def missing() -> str:
    """What keeps this machine from a Kubernetes of several nodes; empty: nothing."""
    for program in (CONTROL_PLANE, NODES):
        done = subprocess.run([program, "missing"], capture_output=True, text=True)
        if done.returncode:
            return f"Kubernetes' tests need {done.stdout.strip()}: tests/kubernetes/README.md"
    return ""


@contextmanager
def free_number(locks: Path, folder: Path) -> Iterator[int]:
    """The number of a cluster that nobody on this machine has at the moment.

    Its lock names the cluster's folder: a later session ends what one that was killed has left.
    """
    for number in NUMBERS:
        with (locks / f"allranks-kubernetes-{number}.lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            lock.seek(0)
            if left := lock.read():
                _end(_environment(number, Path(left)))
            if Path(f"/sys/class/net/kube{number}").exists():
                continue  # started by hand
            lock.truncate(0)
            lock.write(str(folder))
            lock.flush()
            yield number
            lock.truncate(0)
            return
    raise AssertionError("there are forty clusters of tests on this machine")


def _environment(number: int, folder: Path) -> dict[str, str]:
    """Nothing of a test's own: daemons would carry it for the whole session."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ALLRANKS_") or name.startswith("ALLRANKS_TEST_")
    }
    return {**kept, "KUBE_ID": str(number), "KUBE_DIR": str(folder)}


def _end(env: Mapping[str, str]) -> None:
    _run([NODES, "down"], env)
    _run([CONTROL_PLANE, "down"], env)


@contextmanager
def running(folder: Path, locks: Path, nodes: int = 3) -> Iterator[Kubernetes]:
    """A cluster that is up, and its state in ``folder``; names of headless Services resolve."""
    with free_number(locks, folder) as number:
        env = _environment(number, folder)
        archives = folder / "pause.tar", folder / "trainer.tar"
        binaries = Path(_run([CONTROL_PLANE, "binaries"], env))
        try:
            images.write_pause(archives[0], binaries / "pause")
            images.write_trainer(archives[1])
            _run([CONTROL_PLANE, "up"], env)
            with _resolver(env), _client(folder, number) as api:
                found = Kubernetes(env, folder, api)
                found.nodes("up", nodes, *archives)
                yield found
        finally:
            _end(env)
            for archive in archives:
                archive.unlink(missing_ok=True)


def _client(folder: Path, number: int) -> httpx.Client:
    trusted = ssl.create_default_context(cafile=str(folder / "pki/ca.crt"))
    token = (folder / "admin.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    url = f"https://198.19.{number}.1"
    return httpx.Client(base_url=url, headers=headers, verify=trusted, timeout=10, trust_env=False)


@contextmanager
def _resolver(env: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, RESOLVER], env=env, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
