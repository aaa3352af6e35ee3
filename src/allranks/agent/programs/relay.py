"""Forward a port of this node's loopback to the server, under TLS. Run as a file.

    python relay.py FD HOST PORT FINGERPRINT

FD is the listening socket. Clients such as MLflow's speak plain HTTP to it. The server is verified
by the SHA-256 of its certificate, not by name. The relay ends when its standard input does.
Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import ssl
import sys

_PIECE = 1 << 18


async def _to(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, pin: str
) -> None:
    """Forward one connection. It is closed if the server cannot be reached; its client retries."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    there: asyncio.StreamWriter | None = None
    try:
        back, there = await asyncio.open_connection(host, port, ssl=context)
        shown = there.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        if hashlib.sha256(shown).hexdigest() == pin:
            ways = [asyncio.create_task(_carry(*way)) for way in ((reader, there), (back, writer))]
            # With HTTP, both directions end together.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for task in ways:
                task.cancel()
    except OSError:
        pass
    finally:
        writer.close()
        if there is not None:
            there.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()


async def _relay(fd: int, host: str, port: int, pin: str) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: _to(reader, writer, host, port, pin), sock=socket.socket(fileno=fd)
    )
    async with server:
        # The process ends at the end of its input.
        await asyncio.to_thread(os.read, 0, 1)
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(_relay(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
