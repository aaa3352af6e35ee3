"""The server of the benchmark of many agents: the real one, with an engine that starts nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

import uvicorn

from allranks.engines.base import Kind, Target
from allranks.engines.fake import FakeEngine
from allranks.plan.plan import Gang, Plan, Rules, Task
from allranks.server.app import create_app
from allranks.server.auth.identity import Auth
from allranks.settings import Clocks, Home, make
from allranks.store.database import open_database
from allranks.store.jobs.records import Records

ENGINE = "fake"


def main(root: str, jobs: int, nodes: int) -> None:
    """Serve ``jobs`` jobs of ``nodes`` nodes each; the port and the agents' tokens on stdout."""
    home = Home(Path(root))
    make(home)
    engine = open_database(home.database)
    records = Records(engine)
    for number in range(jobs):
        name = f"j{number}"
        task = Task(name, "bench", "true", nodes)
        records.create({}, Plan(Gang(f"{name}.1", nodes, ("agent",)), task, Rules(nodes), ENGINE))
    engine.dispose()
    kind = Kind(ENGINE, "starts nothing", (), lambda *_: cast(Target, FakeEngine()), lambda _: None)
    app = create_app(home, Clocks(lease=60.0), "http://127.0.0.1:0", {ENGINE: kind})
    config = uvicorn.Config(app, log_config=None, access_log=False, port=0, backlog=4096)
    listening = config.bind_socket()
    listening.listen(4096)
    auth = Auth(home)
    tokens = [auth.agent_token(f"j{number}", 1) for number in range(jobs)]
    print(json.dumps({"port": listening.getsockname()[1], "tokens": tokens}), flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
