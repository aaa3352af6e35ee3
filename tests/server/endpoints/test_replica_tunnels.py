"""ReplicaTunnels to replicas on other machines."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from allranks.server.endpoints.replica_tunnels import ReplicaTunnels
from allranks.server.http.upgrade import Pipe

_SENT = 16 << 20


class Flood:
    """A node that sends without having been asked, and leaves."""

    async def join(self, channel: object, index: int, pipe: Pipe) -> None:
        self.task = asyncio.create_task(self._send(pipe.transport))

    async def _send(self, transport: Any) -> None:
        for _ in range(_SENT >> 20):
            transport.write(bytes(1 << 20))
            while transport.get_write_buffer_size():
                await asyncio.sleep(0)
        transport.close()


def test_what_a_node_sends_is_not_kept(tmp_path: Path):
    channels: Any = Flood()
    channel: Any = SimpleNamespace(job="j", pipes=[])
    records: Any = None
    tracemalloc.start()
    try:
        asyncio.run(ReplicaTunnels(channels, records, tmp_path)._serve(channel, "s"))
        assert tracemalloc.get_traced_memory()[1] < _SENT / 2
    finally:
        tracemalloc.stop()
