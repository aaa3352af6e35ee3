"""The server of the benchmark of many agents: the real one, with an engine that starts nothing."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import cast

import uvicorn

from allranks.core.plan import Gang, InputTask, Plan, Rules, Task
from allranks.engines.base import Kind, Target
from allranks.engines.fake import FakeEngine
from allranks.http_limits.connection_limit import Listener
from allranks.http_limits.server import config
from allranks.server.app import create_app
from allranks.server.auth.identity import Auth
from allranks.server.http.agents_listener import AgentsListener
from allranks.settings import Clocks, Home, make
from allranks.store.database import open_database
from allranks.store.jobs.records import Records

ENGINE = "fake"


def main(root: str, door: str, gangs: list[int], data: str = "") -> None:
    """Serve a job for each of ``gangs``, of so many nodes; the port and the agents' tokens on
    stdout. ``door``: plain or tls; ``data``: an input in the home, which no node shares."""
    home = Home(Path(root))
    make(home)
    engine = open_database(home.database)
    records = Records(engine)
    for number, nodes in enumerate(gangs):
        name = f"j{number}"
        task = Task(name, "bench", "true", nodes)
        if data:
            task = task._replace(sends_files=True, inputs=(InputTask("d", source=data),))
        records.create({}, Plan(Gang(f"{name}.1", nodes, ("agent",)), task, Rules(nodes), ENGINE))
    engine.dispose()
    fake = cast(Target, FakeEngine(max(gangs)))
    kind = Kind(ENGINE, "starts nothing", (), lambda *_: fake, lambda _: ())
    app = create_app(home, Clocks(hello=3600.0), "http://127.0.0.1:0", {ENGINE: kind})
    # All agents are at one address here, so none may be refused for it.
    listening = Listener(socket.AF_INET, ("127.0.0.1", 0), per_address=100_000)
    auth = Auth(home)
    tokens = [auth.agent_token(f"j{number}", 1) for number in range(len(gangs))]
    print(json.dumps({"port": listening.getsockname()[1], "tokens": tokens}), flush=True)
    listener = AgentsListener(home, app, lambda: None)
    certificate = str(listener.certificate()) if door == "tls" else None
    uvicorn.Server(config(app, certificate=certificate, lifespan=True)).run(sockets=[listening])


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[3:] if each.isdigit()]
    main(sys.argv[1], sys.argv[2], sizes, "".join(sys.argv[3 + len(sizes) :]))
