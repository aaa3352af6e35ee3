"""`job download`, `data download` and `model download`: a server that lies, in its lists of files
and in what it sends of them."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import zlib
from typing import Any
from urllib.parse import unquote

from allranks.cli.output import show
from allranks.errors import AllranksError
from allranks.http_client import Client
from allranks.sdk.connection import reopened
from allranks.sdk.transfer.download import download, download_data, download_model
from tests.hostile.harness import Outcome, Place

TRIES = 90
_NESTED = "[" * 60_000
_ODD: list[Any] = [None, -1, 2**52, 2**63, 10**400, "x", [], {}, True, 1.5, "\x1b[2J", 0]
_BODIES = [
    b"",
    b"null",
    b"[]",
    b"3",
    b"<html>",
    _NESTED.encode(),
    b'{"error": "spec", "problems": 3}',
]
# What a server of each kind lies about, besides files.
_LIES = {"job": ["folder", "folder"], "data": ["folder", "name", "link"], "model": ["name", "name"]}
_HEADS = [
    b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffff\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000,
    b"HTTP/1.1 " + b"9" * 6000 + b" OK\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
]


class _Server:
    """Answers requests on a connection, most often as a server of ours. Two of three tell one lie
    alone, a path that leads elsewhere, so that nothing but the rule for paths can refuse it."""

    def __init__(self, chance: random.Random, place: Place, kind: str) -> None:
        self.chance, self.kind = chance, kind
        self.name = "m"
        self.honest = {
            f"artifacts/outputs/f{n}": chance.randbytes(chance.choice([0, 100, 5000]))
            for n in range(chance.randint(0, 3))
        }
        self.only = chance.choice(["", "file", "file", "file", *_LIES[kind]])
        self.lies = not self.only and chance.random() < 0.8
        self.paths = [_path(chance, place) for _ in range(chance.choice([0, 1, 1, 1, 3]))]
        if self.only == "name":
            self.name, self.paths = chance.choice(["../outside", ".ssh", "n"]), ["new"]
        elif self.only == "link":
            self.paths = [chance.choice(["../../outside", "../../beside", str(place.outside)])]
        elif self.only:
            self.paths = [_elsewhere(chance, kind)]
        elif self.lies and chance.random() < 0.3:
            self.name = chance.choice(["../m", "m/x", "\x1b[2J", "", ".ssh"])
        self.rest = chance.choice([0, 2, 4, 99, 99, 99])  # after so many answers anything may come

    def reply(self, path: str, body: bytes) -> bytes:
        self.rest -= 1
        if self.lies and self.rest < 0 and self.chance.random() < 0.3:
            return self.chance.choice(_HEADS)
        answer = self._answer(path, body)
        if self.lies and self.chance.random() < 0.04:
            answer = self.chance.choice(_BODIES)
            if path.endswith(("/files", "/manifest")):
                self.honest = {}  # nobody can miss what is not listed
        status = b"404 Not Found" if answer.startswith(b'{"error"') else b"200 OK"
        return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(answer), answer)

    def _answer(self, path: str, body: bytes) -> bytes:
        path, _, query = path.partition("?")
        path = unquote(path)
        if path.endswith("/bundle"):
            return b"".join(self._piece(each["path"]) for each in json.loads(body))
        if "folders=true" in query:
            told = self.paths if self.lies or self.only == "folder" else []
            times = [self.chance.choice(_ODD) if self.lies else 10**18 for _ in told]
            folders = [{"path": p, "mtime_ns": t} for p, t in zip(told, times, strict=True)]
            return json.dumps(folders).encode()
        if "too_long=true" in query:
            return json.dumps(self.paths if self.lies else []).encode()
        if path.endswith(("/files", "/manifest")):
            return json.dumps(self._listing()).encode()
        if path.endswith("/links"):
            links = (
                self.paths
                if "=true" not in query and self.kind == "job"
                else [
                    {
                        "path": each,
                        "target": self.chance.choice(["../../outside", "/etc", "x", "l"]),
                    }
                    for each in self.paths
                ]
            )
            if self.only == "link":
                links = [{"path": "l", "target": self.paths[0]}]
            return json.dumps(links if self.lies or self.only == "link" else []).encode()
        if path.endswith("/events"):
            return b"[]"
        about = {"type": "command", "spec": {}, "outputs": {}, "attempts": 1, "ended_at": "2026"}
        return json.dumps({**about, "name": self.name, "version": "1", "path": "x"}).encode()

    def _listing(self) -> Any:
        listed: list[Any] = [
            {"path": path, "size": len(data), "mtime_ns": 10**18, "sha256": ""}
            for path, data in self.honest.items()
        ]
        if self.lies or self.only in ("file", "name"):
            for path in self.paths:
                file = {"path": path, "size": 5, "mtime_ns": 10**18, "sha256": ""}
                if self.chance.random() < 0.3:
                    file["link"] = self.chance.choice([*self.paths, *self.honest, "/etc", *_ODD])
                if self.lies and self.chance.random() < 0.1:
                    file[self.chance.choice([*file])] = self.chance.choice(_ODD)
                if self.lies and self.chance.random() < 0.1:
                    file.pop(self.chance.choice([*file]))
                listed.append(file)
        return listed

    def _piece(self, path: str) -> bytes:
        data = self.honest.get(path)
        if data is None or (self.lies and self.chance.random() < 0.2):
            self.honest.pop(path, None)  # its content is a lie
            head: Any = {"size": 5, "mtime_ns": 1, "crc32": zlib.crc32(b"hello")}
            if self.lies and self.chance.random() < 0.5:
                head[self.chance.choice([*head])] = self.chance.choice(_ODD)
            return json.dumps(head).encode() + b"\nhello"
        head = {"size": len(data), "mtime_ns": 10**18, "crc32": zlib.crc32(data)}
        return json.dumps(head).encode() + b"\n" + data


def _elsewhere(chance: random.Random, kind: str) -> str:
    """A path that leads out of what was asked for, and that every file system takes."""
    above = "artifacts/outputs/../../" if kind == "job" else "../"
    outside = ["../outside/secret", "../beside", "../new/x"]
    return above + chance.choice([*outside, ".bashrc", ".ssh/authorized_keys"])


def _path(chance: random.Random, place: Place) -> str:
    return chance.choice(
        [
            "artifacts/outputs/../../../outside/secret",
            str(place.outside / "secret"),
            "artifacts/outputs/l/x",
            ".bashrc",
            ".ssh/authorized_keys",
            "artifacts/outputs/l",
            "artifacts//x",
            "artifacts/" + "d/" * 3000 + "x",
            "artifacts/outputs/\x1b[2J\u202e",
            "artifacts/outputs/\ud800",
            "artifacts/outputs/\0",
            "artifacts/outputs/" + "n" * 300,
            "",
            "artifacts/outputs/f0",
            "artifacts/outputs/f0/x",
        ]
    )


def _serve(server: _Server, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(server, connection), daemon=True).start()


def _answer(server: _Server, connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as requests, contextlib.suppress(OSError):
        while line := requests.readline():
            path, size = line.decode().split(" ")[1], 0
            while (header := requests.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"content-length:"):
                    size = int(header.split(b":")[1])
            reply = server.reply(path, requests.read(size))
            connection.sendall(reply)
            if reply in _HEADS:
                return


def attempt(chance: random.Random, place: Place) -> Outcome:
    kind, fetch = chance.choice(
        [("job", download), ("data", download_data), ("model", download_model)]
    )  # type: str, Callable[..., Fetched]
    options = {"everything": True} if kind == "job" and chance.random() < 0.5 else {}
    (place.goal / "m").mkdir()
    server = _Server(chance, place, kind)
    pauses, reopened._PAUSES = reopened._PAUSES, ()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=_serve, args=(server, listener))
        serving.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            fetched = fetch(lambda: Client(url, timeout=2.0), "m", place.goal, **options)
            said = [*fetched.gone, *fetched.links, *fetched.left_out, *fetched.too_long]
        except AllranksError as error:
            said = [str(error)]
        finally:
            reopened._PAUSES = pauses
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
    names = {path.name for path in place.goal.iterdir()}
    assert names <= ({"m", "artifacts", "attempts"} if kind == "job" else {"m"}), names
    prefix = "" if kind == "job" else "m/"
    sent = {f"{prefix}{path}": data for path, data in server.honest.items()}
    return Outcome(sent, "\n".join(line for each in said for line in show.safe_lines(each)))
