"""What goes to MLflow's socket, and what is left when one of the two sides goes away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from allranks.server.http.forward import Call, forward


def test_who_goes_away_in_the_middle_of_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    heard = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await reader.readexactly(10**6)  # MLflow waits for what was promised
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            heard.append(type(error))
        writer.close()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 1000
        raise ConnectionError("the client disconnected")

    async def send(message: object) -> None:
        raise AssertionError(message)

    async def main() -> None:
        path = str(tmp_path / "s")
        async with await asyncio.start_unix_server(serve, path):
            call = Call("PUT", "/a", [], 10**6)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(forward(path, call, body(), send), 30)
            while not heard:
                await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
