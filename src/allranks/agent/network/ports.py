"""Free ports for the ranks of a node, held until the ranks are about to start."""

from __future__ import annotations

import random
import socket

from allranks.errors import EngineError


def hold(count: int, address: str = "") -> list[socket.socket]:
    """``count`` sockets, each bound to a free port of ``address``, by default of all addresses.

    The ports are outside the range of outgoing connections, so none of those can take a port
    between our release and its use by a rank (importing torch takes seconds). Raises EngineError.
    """
    found: list[socket.socket] = []
    low, high = _range()
    # This is not the user's process, so its random seeds have no effect here.
    for port in random.sample(range(low, high), k=min(512, high - low)):
        if len(found) == count:
            return found
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind((address, port))
            found.append(held)
        except OSError:
            held.close()
    if len(found) == count:
        return found
    raise EngineError(
        f"no {count} free ports between {low} and {high} on this node",
        hint="see which ports are in use: ss -ltn",
    )


def numbers(held: list[socket.socket]) -> tuple[int, ...]:
    return tuple(each.getsockname()[1] for each in held)


def release(held: list[socket.socket]) -> None:
    for each in held:
        each.close()
    held.clear()


def _range() -> tuple[int, int]:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = (int(word) for word in file.read().split())
    if first > 12000:
        return 10000, first
    return (last + 1, 65536) if last < 64000 else (first, last)
