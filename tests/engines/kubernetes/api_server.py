"""An API server of Kubernetes over real HTTP that keeps objects in memory, for what a real one does
only at bad moments: 410, 409, 429, 500, cut and silent connections.

Jobs that are not suspended get pods, which run at once. Everything else is up to the test.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

INDEX = "batch.kubernetes.io/job-completion-index"
TOKEN = "t0ken"
Object = dict[str, Any]
Fault = Callable[["Handler"], None]


class ApiServer:
    """``requests`` lists method and path of each. ``faults`` answer the next requests whose method
    and path they are for, instead of the server."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.version = 10
        self.oldest = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[tuple[int, str, Object]] = []
        self.requests: list[tuple[str, str]] = []
        self.faults: list[tuple[str, str, Fault]] = []
        self.denied: set[tuple[str, str]] = set()
        self.watches: list[Handler] = []
        self.creates_pods = True
        self.dead_nodes: set[str] = set()
        for number in range(4):
            self.add_node(f"n{number}")
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.api = self  # type: ignore[attr-defined]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def add_node(self, name: str, cpu: str = "1") -> None:
        self.put(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"disk": "ssd" if name == "n0" else "hdd"}},
                "spec": {},
                "status": {
                    "allocatable": {"cpu": cpu, "memory": "4Gi"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                },
            },
        )

    # ------------------------------------------------------------ objects

    def put(self, kind: str, each: Object, event: str = "MODIFIED") -> Object:
        """Store an object and tell the watches."""
        with self.lock:
            self.version += 1
            each["metadata"]["resourceVersion"] = str(self.version)
            self.objects[kind, each["metadata"]["name"]] = each
            self.events.append((self.version, kind, {"type": event, "object": _copy(each)}))
            self.lock.notify_all()
            return each

    def remove(self, kind: str, name: str) -> None:
        with self.lock:
            each = self.objects.pop((kind, name))
            self.version += 1
            each["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((self.version, kind, {"type": "DELETED", "object": _copy(each)}))
            self.lock.notify_all()

    def forget(self) -> None:
        """Compact: all versions so far are too old for a watch."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            self.events.clear()

    def of(self, kind: str) -> list[Object]:
        with self.lock:
            return [each for (found, _), each in self.objects.items() if found == kind]

    def change_pod(self, node: int, **status: Any) -> None:
        """Set fields of the status of the only gang's pod ``node``."""
        with self.lock:
            for pod in self.of("pods"):
                if pod["metadata"]["annotations"][INDEX] == str(node):
                    pod["status"] |= status
                    self.put("pods", pod)

    def kill_node(self, name: str) -> None:
        """Its kubelet is silent: the node's controller says so, and pods on it do not end."""
        with self.lock:
            self.dead_nodes.add(name)
            node = self.objects["nodes", name]
            node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
            self.put("nodes", node)

    def revive_node(self, name: str) -> None:
        with self.lock:
            self.dead_nodes.discard(name)
            self.add_node(name)

    # ------------------------------------------------------------ faults

    def fail(self, method: str, part: str, *faults: Fault) -> None:
        """Let the next requests of this method with ``part`` in their path fail like that."""
        self.faults += [(method, part, fault) for fault in faults]

    def cut_watches(self) -> None:
        for each in list(self.watches):
            with contextlib.suppress(OSError):
                each.connection.shutdown(socket.SHUT_RDWR)
        with self.lock:
            self.lock.notify_all()

    # ------------------------------------------------------------ the Job controller

    def drive(self, job: Object) -> None:
        name = job["metadata"]["name"]
        if job["spec"].get("suspend"):
            for pod in [each for each in self.of("pods") if _owner(each) == name]:
                if pod["spec"].get("nodeName") in self.dead_nodes:
                    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                    self.put("pods", pod)
                else:
                    self.remove("pods", pod["metadata"]["name"])
            return
        if not self.creates_pods:
            return
        for number in range(job["spec"]["completions"]):
            template = _copy(job["spec"]["template"])
            template["metadata"]["annotations"][INDEX] = str(number)
            pod = {
                "metadata": {**template["metadata"], "name": f"{name}-{number}-abcde"},
                "spec": {**template["spec"], "nodeName": f"n{number}"},
                "status": {
                    "phase": "Running",
                    "conditions": [
                        {"type": kind, "status": "True"}
                        for kind in ("PodScheduled", "Ready", "ContainersReady")
                    ],
                    "containerStatuses": [{"name": "node", "state": {"running": {}}}],
                },
            }
            pod["metadata"]["ownerReferences"] = [{"name": name}]
            if ("pods", pod["metadata"]["name"]) not in self.objects:
                self.put("pods", pod, "ADDED")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def api(self) -> ApiServer:
        found: ApiServer = self.server.api  # type: ignore[attr-defined]
        return found

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.parts = [part for part in url.path.split("/") if part]
        size = int(self.headers.get("content-length") or 0)
        self.body: Object = json.loads(self.rfile.read(size) or b"{}")
        with self.api.lock:
            self.api.requests.append((self.command, self.path))
            due = [
                each for each in self.api.faults if each[0] == self.command and each[1] in self.path
            ]
            if due:
                self.api.faults.remove(due[0])
        if due:
            due[0][2](self)
        elif self.headers.get("authorization") != f"Bearer {TOKEN}":
            self.status(401, "Unauthorized")
        else:
            self._answer(url.path)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle

    def _answer(self, path: str) -> None:
        if path == "/version":
            return self.send({"major": "1", "minor": "35+"})
        if path == "/apis":
            return self.send({"groups": [{"name": "apps"}]})
        if path.endswith("selfsubjectaccessreviews"):
            asked = self.body["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self.api.denied
            return self.send({"status": {"allowed": allowed}}, 201)
        at = self.parts.index("namespaces") + 2 if "namespaces" in self.parts else 2
        kind, name = (*self.parts[at:], "", "")[:2]
        if self.query.get("watch"):
            return self._watch(kind)
        with self.api.lock:
            return getattr(self, f"_{self.command.lower()}")(kind, name)

    def _get(self, kind: str, name: str) -> None:
        if not name:
            found = [each for each in self.api.of(kind) if self._selects(each)]
            about = {"resourceVersion": str(self.api.version)}
            return self.send({"items": found, "metadata": about})
        each = self.api.objects.get((kind, name))
        return self.send(each) if each else self.status(404, f'{kind} "{name}" not found')

    def _post(self, kind: str, _: str) -> None:
        each = self.body
        name = each["metadata"]["name"]
        if (kind, name) in self.api.objects:
            return self.status(409, f'{kind} "{name}" already exists', "AlreadyExists")
        if not each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", True):
            return self.status(422, "spec.template.spec.containers: Required value")
        each["metadata"]["uid"] = f"uid-{name}"
        if self.query.get("dryRun"):
            return self.send(each, 201)
        self.api.put(kind, each, "ADDED")
        self.send(each, 201)
        return self.api.drive(each) if kind == "jobs" else None

    def _patch(self, kind: str, name: str) -> None:
        each = self.api.objects.get((kind, name))
        if each is None:
            return self.status(404, f'{kind} "{name}" not found')
        each["spec"] |= self.body["spec"]
        self.api.put(kind, each)
        self.send(each)
        return self.api.drive(each)

    def _delete(self, kind: str, name: str) -> None:
        if (kind, name) not in self.api.objects:
            return self.status(404, f'{kind} "{name}" not found')
        if kind == "jobs":
            assert self.body["propagationPolicy"] == "Foreground"
            for each in ("pods", "secrets", "services"):
                for owned in [o for o in self.api.of(each) if _owner(o) == name]:
                    self.api.remove(each, owned["metadata"]["name"])
        self.api.remove(kind, name)
        return self.send({})

    def _watch(self, kind: str) -> None:
        api, since = self.api, int(self.query.get("resourceVersion") or 0)
        if since < api.oldest:
            return self.status(410, "too old resource version", "Expired")
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        api.watches.append(self)
        until = time.monotonic() + float(self.query["timeoutSeconds"])
        try:
            while (left := until - time.monotonic()) > 0:
                with api.lock:
                    due = [each for each in api.events if each[0] > since and each[1] == kind]
                    if since < api.oldest:
                        expired = {"code": 410, "message": "too old resource version"}
                        due = [(api.version, kind, {"type": "ERROR", "object": expired})]
                    if not due:
                        api.lock.wait(min(left, 0.5))
                for version, _, event in due:
                    since = version
                    if event["type"] == "ERROR" or self._selects(event["object"]):
                        self._chunk(json.dumps(event).encode() + b"\n")
                if due and due[-1][2]["type"] == "ERROR":
                    break
            self._chunk(b"")
        except OSError:
            self.close_connection = True
        finally:
            api.watches.remove(self)
        return None

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _selects(self, each: Object) -> bool:
        labels = each["metadata"].get("labels") or {}
        wanted = [part.split("=") for part in self.query.get("labelSelector", "").split(",")]
        return all(labels.get(pair[0]) == pair[1] for pair in wanted if len(pair) == 2)

    def send(self, body: Object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def status(self, code: int, message: str, reason: str = "") -> None:
        self.send({"kind": "Status", "code": code, "message": message, "reason": reason}, code)


def answers(code: int, message: str = "not now") -> Fault:
    return lambda handler: handler.status(code, message)


def cuts(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def _owner(each: Object) -> str:
    found = each["metadata"].get("ownerReferences") or [{"name": ""}]
    return str(found[0]["name"])


def _copy(each: Object) -> Object:
    copied: Object = json.loads(json.dumps(each))
    return copied


@contextmanager
def running() -> Iterator[ApiServer]:
    server = ApiServer()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.cut_watches()
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def kubeconfig(folder: Path, server: ApiServer, token: str = TOKEN) -> dict[str, Any]:
    """Write a kubeconfig for the server and return the options that select it."""
    path = folder / "kubeconfig"
    path.write_text(
        f"""\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server.url}"}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts:
- {{name: x, context: {{cluster: c, user: u, namespace: team}}}}
- {{name: y, context: {{cluster: c, user: u}}}}
current-context: x
"""
    )
    return {"kubeconfig": str(path)}
