"""The server sleeps, and leaves when it is told."""

import threading

import pytest
import uvicorn

from allranks.http_limits import server as limits
from allranks.http_limits.server import SleepingServer
from tests.support import until


async def app(scope, receive, send) -> None: ...


@pytest.mark.parametrize("before", [True, False])
def test_it_leaves_at_once(monkeypatch, before: bool) -> None:
    monkeypatch.setattr(limits, "_TICK", 600.0)
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
