"""Client libraries of Kubernetes: size, import, memory, and whether a credential plugin works."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from uv import find_uv_bin

from bench.report import Result, table

_TIMES = 9
_IMPORT = {
    "kubernetes": "from kubernetes import config\n"
    "from kubernetes.client.rest import RESTClientObject",
    "lightkube": "from lightkube import Client, KubeConfig\n"
    "from lightkube.resources.batch_v1 import Job",
    "kr8s": "import kr8s\nfrom kr8s.objects import Job",
}
_LIST = {
    "kubernetes": "from kubernetes import client\nconfig.load_kube_config(FILE)\n"
    "client.BatchV1Api().list_namespaced_job('default', _request_timeout=5)",
    "lightkube": "list(Client(config=KubeConfig.from_file(FILE)).list(Job))",
    "kr8s": "list(kr8s.api(kubeconfig=FILE).get('jobs.v1.batch', namespace='default'))",
}
_MEASURE = """
import time
began = time.process_time()
{imports}
took = time.process_time() - began
pages = int(open("/proc/self/statm").read().split()[1])
print(took, pages * 4096 / (1 << 20))
"""
_JOBS = {"name": "jobs", "singularName": "job", "namespaced": True, "kind": "Job"}


def options(parser: argparse.ArgumentParser) -> None:
    del parser  # it has none


def run(given: argparse.Namespace) -> Result:
    del given
    rows, data = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in _IMPORT:
            found = _measure(name, Path(folder, name))
            data[name] = found
            rows.append(
                (
                    f"{name} {found['version']}",
                    f"{found['import_ms']:.0f} ms",
                    f"{found['resident_mb']:.0f} MB",
                    f"{found['disk_mb']:.0f} MB",
                    *("works" if works else "fails" for works in found["plugins"].values()),
                )
            )
    head = ("client", "import, CPU", "resident", "on disk", "plugin v1beta1", "plugin v1")
    return Result(name="kubernetes_clients", text=table(head, rows), data=data, bars=[], wrong=[])


def _measure(name: str, folder: Path) -> dict[str, Any]:
    uv, python = find_uv_bin(), folder / "bin" / "python"
    for words in (["venv", "-q", str(folder)], ["pip", "install", "-q", "-p", str(python), name]):
        subprocess.run([uv, *words], check=True)
    script = _MEASURE.format(imports=_IMPORT[name])
    samples = [
        tuple(map(float, subprocess.check_output([python, "-c", script]).split()))
        for _ in range(_TIMES + 1)
    ][1:]
    version = f"import importlib.metadata as m; print(m.version({name!r}))"
    used = subprocess.check_output(["du", "-sm", "--exclude=__pycache__", folder / "lib"])
    return {
        "version": subprocess.check_output([python, "-c", version], text=True).strip(),
        "import_ms": median(took for took, _ in samples) * 1e3,
        "resident_mb": median(resident for _, resident in samples),
        "disk_mb": float(used.split()[0]),
        "plugins": {each: _plugin_works(name, python, each) for each in ("v1beta1", "v1")},
    }


def _plugin_works(name: str, python: Path, version: str) -> bool:
    """Whether a list with a credential plugin of that version sends the plugin's token."""
    sent: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("authorization"))
            body = json.dumps({"items": [], "metadata": {}, "resources": [_JOBS]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api = f"client.authentication.k8s.io/{version}"
    told = {"apiVersion": api, "kind": "ExecCredential", "status": {"token": "by-plugin"}}
    plugin, file = python.parent / "plugin", python.parent / "kubeconfig"
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    plugin.chmod(0o755)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    user = {"exec": {"apiVersion": api, "command": str(plugin), "interactiveMode": "Never"}}
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    script = f"{_IMPORT[name]}\n{_LIST[name].replace('FILE', repr(str(file)))}"
    subprocess.run([python, "-c", script], capture_output=True, timeout=60)
    server.shutdown()
    server.server_close()
    return "Bearer by-plugin" in sent
