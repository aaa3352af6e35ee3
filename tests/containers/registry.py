"""A registry of one image, over HTTP: as much of the protocol as a pull asks for."""

from __future__ import annotations

import base64
import hashlib
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
def serving(
    folder: Path, where: tuple[str, int] = ("127.0.0.1", 0), account: str = ""
) -> Iterator[tuple[str, threading.Event]]:
    """The image that was pushed to ``folder`` (`dir:`): its address, and an event; until that is
    set the image's content does not come. With an ``account`` (`name:password`) only for that."""
    wanted = f"Basic {base64.b64encode(account.encode()).decode()}" if account else None
    gate = threading.Event()
    manifest = (folder / "manifest.json").read_bytes()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.strip("/").split("/")
            if self.headers["Authorization"] != wanted and wanted:
                wrong = {"errors": [{"code": "UNAUTHORIZED", "message": "who are you?"}]}
                self._answer(401, json.dumps(wrong).encode(), "application/json")
            elif parts == ["v2"]:
                self._answer(200, b"{}", "application/json")
            elif parts[-2:] in (["manifests", "1"], ["manifests", digest]):
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
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="tests"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: it would stand in the tests' output."""

    server = ThreadingHTTPServer(where, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{where[0]}:{server.server_port}/{NAME}", gate
    finally:
        gate.set()
        server.shutdown()
        server.server_close()
