"""The agents' listener, with real sockets."""

import asyncio
import socket
from pathlib import Path

import pytest

from allranks import settings
from allranks.errors import ServerError
from allranks.server.http.agents_listener import AgentsListener
from allranks.settings import Home


@pytest.fixture
def listener(tmp_path: Path) -> AgentsListener:
    settings.make(home := Home(tmp_path / "home"))

    async def app(scope: object, receive: object, send: object) -> None: ...

    return AgentsListener(home, app, lambda: None)


def answers(listener: AgentsListener, address: str) -> bool:
    port = int(listener.url(address).rpartition(":")[2])
    try:
        socket.create_connection((address, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.medium
@pytest.mark.parametrize(
    "order", [("dns:a.svc", "127.0.0.2"), ("127.0.0.2", "dns:a.svc"), ("dns:a.svc", "dns:b.svc")]
)
def test_a_name_and_other_addresses_go_together(listener: AgentsListener, order: tuple[str, ...]):
    async def scenario() -> None:
        try:
            for address in order:
                await listener.open(address)
            assert listener.trouble == {}
            for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
                assert await asyncio.to_thread(answers, listener, address)
        finally:
            await listener.close()
        assert not await asyncio.to_thread(answers, listener, "127.0.0.1")

    asyncio.run(scenario())


@pytest.mark.medium
def test_an_address_that_was_closed_for_all_is_opened_again(listener: AgentsListener):
    async def scenario() -> None:
        port = int(listener.url("x").rpartition(":")[2])
        with socket.socket() as other:
            other.bind(("127.0.0.3", port))
            other.listen()
            await listener.open("127.0.0.2")
            with pytest.raises(ServerError, match="address already in use"):
                await listener.open("dns:a.svc")
            assert {*listener.trouble} == {"127.0.0.2"}
        await listener.open("127.0.0.2")
        assert await asyncio.to_thread(answers, listener, "127.0.0.2")
        await listener.close()

    asyncio.run(scenario())
