"""The server sleeps, and leaves when it is told."""

import threading

import pytest
import uvicorn

from allranks.server.http import sleeping_server
from allranks.server.http.sleeping_server import SleepingServer
from tests.support import until


async def app(scope, receive, send) -> None: ...


@pytest.mark.parametrize("before", [True, False])
def test_it_leaves_at_once(monkeypatch, before: bool) -> None:
    monkeypatch.setattr(sleeping_server, "_TICK", 600.0)
    server = SleepingServer(uvicorn.Config(app, port=0, lifespan="off", log_config=None))
    server.should_exit = before
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    if not before:
        until(lambda: server.started)
        server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()
    server.should_exit = True  # its loop is closed
