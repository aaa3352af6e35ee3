"""A port of this node's loopback that leads to the server's door, under TLS: run as a file.

    python relay.py FD HOST PORT FINGERPRINT

FD is the listening socket. What connects there speaks plain HTTP, as any client of MLflow's does,
and need not know that the door is known by its certificate alone (its SHA-256) and not by a name.
It ends when its standard input does. Standard library only.
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
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, known: str
) -> None:
    """Carry one connection; closed where the door cannot be reached: its client tries again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    there: asyncio.StreamWriter | None = None
    try:
        back, there = await asyncio.open_connection(host, port, ssl=context)
        shown = there.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        if hashlib.sha256(shown).hexdigest() == known:
            ways = [asyncio.create_task(_carry(*way)) for way in ((reader, there), (back, writer))]
            # HTTP: when either side is done, so is the other.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in ways:
                each.cancel()
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


async def _relay(fd: int, host: str, port: int, known: str) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: _to(reader, writer, host, port, known), sock=socket.socket(fileno=fd)
    )
    async with server:
        # A thread of its own that nobody waits for: at the end of its input all of this ends.
        await asyncio.to_thread(os.read, 0, 1)
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(_relay(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
