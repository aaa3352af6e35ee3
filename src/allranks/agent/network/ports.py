"""Free ports for the ranks of a node, held until the ranks are about to start."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Sequence

from allranks.errors import EngineError

LOOPBACK = "127.0.0.1"
_TRIES = 2000
# Ports that scripts and tools fix themselves: PyTorch's, those of its tutorials, and Ray's.
_OTHERS = frozenset({29500, 29400, 12355, 12345, 23456, 10001})


def hold(count: int, address: str = "") -> list[socket.socket]:
    """``count`` sockets, each bound to a free port of ``address``, by default of all addresses.

    The ports are outside the range of outgoing connections, so none of those can take a port
    between our release and its use by a rank (importing torch takes seconds). Raises EngineError.
    """
    sockets: list[socket.socket] = []
    low, high = _range()
    # This is not the user's process, so its random seeds have no effect here.
    tries = _TRIES if low < high else 0
    while len(sockets) < count and tries > 0:
        tries -= 1
        port = random.randrange(low, high)
        if port in _OTHERS:
            continue
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind((address, port))
            sockets.append(held)
        except OSError:
            held.close()
    if len(sockets) == count:
        return sockets
    release(sockets)
    hint = "see which ports are in use: ss -ltn"
    raise EngineError(f"no {count} free ports between {low} and {high} on this node", hint=hint)


def numbers(held: list[socket.socket]) -> tuple[int, ...]:
    return tuple(sock.getsockname()[1] for sock in held)


def release(held: list[socket.socket]) -> None:
    for sock in held:
        sock.close()
    held.clear()


def free_port(address: str = "") -> int:
    """The number of a free port, which is not held. Raises EngineError."""
    held = hold(1, address)
    (number,) = numbers(held)
    release(held)
    return number


class PortConflict(EngineError):
    """Another job of this host has the port that this one fixes."""


def claim(fixed: Sequence[int], job: str) -> list[socket.socket]:
    """Claim these ports for the job, until the sockets are closed or this process ends.

    The claims are names of abstract sockets: like ports, they belong to the network namespace, and
    the kernel removes them. Raises PortConflict.
    """
    held: list[socket.socket] = []
    for port in fixed:
        claim = f"\0allranks-port-{port}"
        # The second name tells others whose claim it is. The kernel takes 107 bytes.
        for name in (claim, f"{claim} {job:.80}"):
            held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            try:
                held[-1].bind(name)
            except OSError:
                release(held)
                raise PortConflict(
                    f"the job {_claimant(port)} on the same host uses port {port}, too",
                    hint="submit it again when that job has ended, or name another port; best "
                    "name none: MASTER_PORT is then a port of this job alone",
                ) from None
    return held


def _claimant(port: int) -> str:
    with open("/proc/net/unix", errors="replace") as file:
        match = re.search(rf"@allranks-port-{port} (.+)$", file.read(), re.MULTILINE)
    return match[1] if match else "of somebody else"


def _range() -> tuple[int, int]:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = (int(word) for word in file.read().split())
    if first > 12000:
        return 10000, first
    return (last + 1, 65536) if last < 64000 else (first, last)
