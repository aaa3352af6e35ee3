"""Fetch the agent from the server and become it, on a node that shares no disk with the server.

It is sent as text in the command of each node. It imports nothing of allranks, and an older Python
must be able to parse it, to report that it is too old. The agent's code is named by its SHA-256,
which is compared; the server is known by the fingerprint of its certificate.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import signal
import ssl
import sys
import time
import urllib.parse
import zipfile
from typing import Any

PREFIX = "ALLRANKS_AGENT_"
# Seconds for an answer, and between calls to a server that does not answer.
TIMEOUT, AGAIN = 30.0, 0.5


class Leave(Exception):
    """The server dismisses this node."""


class Server:
    """The agents' routes of a server, which may be away for ``patience`` seconds."""

    def __init__(self, env: dict[str, str], patience: float) -> None:
        url = urllib.parse.urlsplit(env[PREFIX + "URL"])
        self.name, self.patience = url.netloc, patience
        self.base = "/agent/v1/" + env[PREFIX + "NODE"]
        self.head = {"authorization": "Bearer " + env[PREFIX + "TOKEN"]}
        self.fingerprint = env.get(PREFIX + "FINGERPRINT", "")
        self.connection: Any = None

    def get(self, path: str) -> bytes:
        """Return the body of the answer. Raises Leave."""
        until = time.monotonic() + self.patience
        while True:
            try:
                return self.get_once(path)
            except (OSError, http.client.HTTPException) as error:
                self.connection = None
                if time.monotonic() > until:
                    sys.exit(f"allranks: no server answers at {self.name}: {error}")
                time.sleep(AGAIN)

    def get_once(self, path: str) -> bytes:
        if self.connection is None:
            self.connection = self.connect()
        self.connection.request("GET", self.base + path, headers=self.head)
        answer = self.connection.getresponse()
        body: bytes = answer.read()
        if answer.status in (401, 404):
            raise Leave(body.decode(errors="replace")[:300])
        if answer.status != 200:
            raise OSError(f"it answers with status {answer.status}")
        return body

    def connect(self) -> Any:
        if not self.fingerprint:
            return http.client.HTTPConnection(self.name, timeout=TIMEOUT)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        connection: Any = http.client.HTTPSConnection(self.name, timeout=TIMEOUT, context=context)
        connection.connect()
        certificate = connection.sock.getpeercert(True)
        if hashlib.sha256(certificate).hexdigest() != self.fingerprint:
            connection.close()
            raise OSError("its certificate does not match the fingerprint")
        return connection


def fetch(server: Server, digest: str, folder: str) -> None:
    """Unpack the agent's code to ``folder``."""
    content = server.get("/bundle/" + digest)
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit(f"allranks: the agent's code from {server.name} is damaged")
    zipfile.ZipFile(io.BytesIO(content)).extractall(folder)


def main(arguments: list[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # it is the node's Python, not ours
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"allranks: agents need Python 3.11 or newer, and {sys.executable} is {version}")
    # As process 1 it would ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    os.umask(0o077)
    env, folder = dict(os.environ), os.environ[PREFIX + "DIR"]
    os.makedirs(folder, exist_ok=True)
    # In an image: what ranks have of it, all variables that there are.
    if env.get(PREFIX + "OWN_DISK") != "1":
        env[PREFIX + "SITE"] = folder
        for name, variables in (("before", {}), ("after", os.environb)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"".join(b"%s=%s\0" % item for item in variables.items()))
    server = Server(env, float(env.get(PREFIX + "PATIENCE", "120")))
    code = os.path.join(os.path.dirname(folder), "code")
    if env.get(PREFIX + "OWN_DISK") == "1":
        code = folder + "-code"  # its folder may be on a disk that other nodes of the gang share
    try:
        fetch(server, env[PREFIX + "BUNDLE"], code)
        # The agents start when all nodes are there: until then the gang has left no trace.
        while not json.loads(server.get("/start"))["start"]:
            pass
    except Leave as why:
        print(f"allranks: the server dismisses this node: {why}", file=sys.stderr)
        return
    env["PYTHONPATH"] = code
    os.execve(sys.executable, [sys.executable, *arguments], env)


if __name__ == "__main__":
    main(sys.argv[1:])
