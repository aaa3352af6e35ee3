"""A registry of one image, over HTTP on loopback: as much of the protocol as a pull asks for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# As a name stands in a pull: HOST:PORT/NAME:TAG.
NAME = "team/trainer"
_KIND = "application/vnd.oci.image.manifest.v1+json"


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, threading.Event]]:
    """The image that was pushed to ``folder`` (`dir:`): its address, and an event; until that is
    set the image's content does not come."""
    gate = threading.Event()
    manifest = (folder / "manifest.json").read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.strip("/").split("/")
            if parts == ["v2"]:
                self._answer(200, b"{}", "application/json")
            elif parts[-2:] == ["manifests", "1"]:
                self._answer(200, manifest, _KIND)
            elif parts[-2] == "blobs" and (folder / parts[-1].removeprefix("sha256:")).exists():
                gate.wait(60)
                content = (folder / parts[-1].removeprefix("sha256:")).read_bytes()
                self._answer(200, content, "application/octet-stream")
            else:
                wrong = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                self._answer(404, json.dumps(wrong).encode(), "application/json")

        do_HEAD = do_GET

        def _answer(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: it would stand in the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}/{NAME}", gate
    finally:
        gate.set()
        server.shutdown()
        server.server_close()
