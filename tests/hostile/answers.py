"""Commands that ask a server which answers with anything: no traceback, nothing that steers the
terminal."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import random
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

from allranks.cli.main import main
from tests.hostile.harness import Outcome, Place

TRIES = 60
_COMMANDS = [
    ["job", "show", "j"],
    ["job", "list"],
    ["job", "stacks", "j"],
    ["job", "stacks", "j", "--collectives"],
    ["job", "profile", "j", "--last"],
    ["job", "profile", "j", "--last", "--against", "k"],
    ["job", "compare", "j", "k"],
    ["job", "explain", "j"],
    ["job", "metrics", "j"],
    ["job", "files", "j"],
    ["job", "download", "j"],
    ["job", "ssh-config", "j"],
    ["job", "logs", "j"],
    ["goodput", "j"],
    ["dev", "list"],
    ["model", "list"],
    ["state", "list"],
    ["compute", "list"],
    ["endpoint", "list"],
    ["server", "token", "list"],
]
# Keys that many answers have.
_KEYS = [
    "name", "status", "spec", "verdict", "groups", "missing", "at", "live", "jobs", "kind",
    "message", "ranks", "attempts", "ended_at", "nodes", "processes", "type", "outputs", "odd",
    "collectives", "folder", "newest_of", "operators", "memory", "attempt", "series", "computes",
]  # fmt: skip
_VALUES: list[Any] = [
    None, "j", "", "Running", "Completed", 0, -1, 2**52, 10**400, 1e308, True, [], {}, ["j"],
    [{"name": "j"}], {"j": 1}, "\x1b[2J", "a\nHost *\n ProxyCommand x", "\ud800", "x" * 70_000,
]  # fmt: skip
_TEXTS = ["", "null", "[]", "{}", "3", "1e400", "NaN", "[" * 60_000, '{"a":' * 60_000, "<html>"]


def _answer(chance: random.Random) -> str:
    if chance.random() < 0.2:
        return chance.choice(_TEXTS)
    made: Any = {key: chance.choice(_VALUES) for key in _KEYS if chance.random() < 0.8}
    return json.dumps([made] if chance.random() < 0.3 else made)


@contextlib.contextmanager
def _server(chance: random.Random) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_name = self.path.startswith("/api/v1/resolve") and chance.random() < 0.9
            named = {"name": "j", "newest_of": ""}
            text = json.dumps(named) if is_name else _answer(chance)
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attempt(chance: random.Random, place: Place) -> Outcome:
    words = chance.choice(_COMMANDS)
    said = io.StringIO()
    home = {"ALLRANKS_HOME": str(place.goal / "home"), "XDG_CONFIG_HOME": str(place.goal)}
    with _server(chance) as url, contextlib.chdir(place.goal):
        env = {**os.environ, **home, "HOME": str(place.goal), "ALLRANKS_SERVER": url}
        with (
            mock.patch.dict(os.environ, env),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(),
        ):
            # A command's process would end here, with its connections.
            warnings.simplefilter("ignore", ResourceWarning)
            main(words)
            gc.collect()
    return Outcome(said=said.getvalue())
