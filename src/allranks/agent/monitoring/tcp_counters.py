"""Query the kernel for the TCP connections of this node, and what each carried (sock_diag(7)).

/proc counts bytes per process for files, but for the network only per interface.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_BY_FAMILY, _DUMP, _DONE, _ERROR = 20, 0x301, 3, 2
_NETLINK_SOCK_DIAG = 4
_INFO = 2
# Of tcp_info (linux/tcp.h): bytes acknowledged, and bytes received.
_BYTES = struct.Struct("=QQ")
_AT = 120
_ESTABLISHED, _LISTENS = 1 << 1, 1 << 10
# In front of an IPv4 address, as IPv6 sockets show it.
_MAPPED = bytes(10) + b"\xff\xff"


# The address of one end of a connection: its bytes, and the port.
End = tuple[bytes, int]


class Connection(NamedTuple):
    """A TCP socket that is connected or, with port 0 as ``remote``, listens. ``inode`` is 0 until a
    process has accepted it."""

    local: End
    remote: End
    inode: int


def carried() -> dict[int, int]:
    """Return the bytes in both directions by the socket's inode; empty if the kernel refuses."""
    carried: dict[int, int] = {}
    for message in _dump(1 << (_INFO - 1), 0xFFF):
        (inode,) = struct.unpack_from("=I", message, 68)
        for kind, value in _attributes(message[72:]):
            if kind == _INFO and len(value) >= _AT + _BYTES.size:
                carried[inode] = sum(_BYTES.unpack_from(value, _AT))
    return carried


def connections() -> list[Connection]:
    """Return all sockets of this node that are connected or listen; empty if the kernel refuses."""
    sockets = []
    for message in _dump(0, _ESTABLISHED | _LISTENS):
        ports = struct.unpack_from(">HH", message, 4)
        local, remote = (
            message[8 + 16 * i : 24 + 16 * i]
            if message[0] == socket.AF_INET6
            else _MAPPED + message[8 + 16 * i : 12 + 16 * i]
            for i in range(2)
        )
        (inode,) = struct.unpack_from("=I", message, 68)
        sockets.append(Connection((local, ports[0]), (remote, ports[1]), inode))
    return sockets


def _dump(extensions: int, states: int) -> Iterator[bytes]:
    """What the kernel reports on the sockets in these states, of both families."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink,
        ):
            netlink.settimeout(1.0)
            ask = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, extensions, states)
            head = struct.pack("=IHHII", 16 + len(ask), _BY_FAMILY, _DUMP, 1, 0)
            netlink.sendall(head + ask)
            yield from _messages(netlink)


def of_processes(pids: Iterable[int]) -> set[int]:
    """Return the inodes of the processes' sockets."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{name}")
                    if target.startswith("socket:["):
                        inodes.add(int(target[8:-1]))
    return inodes


def _messages(netlink: socket.socket) -> Iterator[bytes]:
    while True:
        data = netlink.recv(1 << 16)
        while len(data) >= 16:
            size, kind = struct.unpack_from("=IH", data)
            if kind in (_DONE, _ERROR) or size < 16:
                return
            yield data[16:size]
            data = data[(size + 3) & ~3 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        if size < 4:
            return
        yield kind, data[4:size]
        data = data[(size + 3) & ~3 :]
