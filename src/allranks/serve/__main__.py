"""The process of the router, `python -m allranks.serve`: the server starts it.

    python -m allranks.serve --folder FOLDER --host HOST --port PORT

In the folder: ``lock`` is held while it runs, ``address`` has its process, host, ports and format,
``control`` is the socket of the server, ``sockets`` those of replicas, ``access.log`` has a line
for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path

from allranks import file_locks, folder_trees
from allranks.http_limits.connection_limit import MOST, raise_file_limit
from allranks.http_limits.server import SleepingServer
from allranks.serve.access_log import AccessLog
from allranks.serve.front import Front
from allranks.serve.probes import probe_all
from allranks.serve.protocol import config
from allranks.serve.router import Router
from allranks.serve.table import FORMAT, load

# Bytes of a line of the server, seconds that running requests get at the end.
_LONGEST, _GRACE = 1 << 26, 30


async def serve(folder: Path, listener: socket.socket) -> None:
    router = Router(folder / "sockets", AccessLog(folder / "access.log"))
    front = Front(router, _GRACE, lambda: _write_address(listener, front))

    class Server(SleepingServer):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Both listeners close at once, and drain together."""
            await asyncio.gather(super().shutdown(sockets), front.close())

    server = Server(config(router, _GRACE))

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One line with the table, or `stop`; the answer is the state."""
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                order = json.loads(line)
                if order.get("stop"):
                    server.should_exit = True
                if "sites" in order:
                    router.change(load(order["sites"]))
                    await front.keep(order.get("front"))
                writer.write(json.dumps(router.state()).encode() + b"\n")
                await writer.drain()
        writer.close()

    os.chdir(folder)
    Path("control").unlink(missing_ok=True)
    door = await asyncio.start_unix_server(control, "control", limit=_LONGEST)
    probes = asyncio.create_task(probe_all(router))
    _write_address(listener, front)
    await server.serve([listener])
    probes.cancel()
    door.close()
    Path("address").unlink(missing_ok=True)


def _write_address(listener: socket.socket, front: Front) -> None:
    host, port = listener.getsockname()[:2]
    data = {"pid": os.getpid(), "host": host, "port": port, "front": front.port, "format": FORMAT}
    folder_trees.write_file(Path("address"), json.dumps(data))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m allranks.serve")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    os.umask(0o077)
    raise_file_limit(MOST)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    folder = options.folder.absolute()
    (folder / "sockets").mkdir(parents=True, exist_ok=True)
    if file_locks.take(folder / "lock") is None:
        sys.exit(0)  # one is running
    (folder / "address").unlink(missing_ok=True)  # of one that was killed
    try:
        listener = socket.create_server((options.host, options.port), backlog=2048)
    except OSError:
        listener = socket.create_server((options.host, 0), backlog=2048)
    # asyncio sets it only for sockets whose protocol is named. Without it the body of an answer
    # waits for the caller to acknowledge the head: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    gc.freeze()  # a collection stops all requests: what is imported is not looked at
    asyncio.run(serve(folder, listener))


if __name__ == "__main__":
    main()
