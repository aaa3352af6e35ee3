"""Lets a debugger into a process that `allranks_hold` keeps: FOLDER RANK [PID]. It passes its own
input and output to the process, which runs pdb on them, and ends when pdb has.

The Python of the rank runs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, Dict, List, Optional

# Seconds after which another debugger must be why there is no answer.
_PATIENCE = 1.0


def main(folder: str, rank: str, pid: str = "") -> int:
    places = [place for place in _places(folder) if str(place["rank"]) == rank]
    for place in _order(places):
        if pid in ("", str(place["pid"])):
            connection = _connected(folder, str(place["pid"]))
            if connection is not None:
                with connection:
                    _note_others(places, place)
                    return _debug(connection, place["pid"])
    who = f"process {pid} of rank {rank}" if pid else f"the process of rank {rank}"
    return _fail(f"{who} is gone: look around with `allranks job shell`")


def _places(folder: str) -> List[Dict[str, Any]]:
    places = []
    for name in os.listdir(folder):
        if name.endswith(".json"):
            with open(os.path.join(folder, name)) as file:
                places.append((os.fstat(file.fileno()).st_mtime, json.load(file)))
    return [place for _, place in sorted(places, key=lambda each: each[0])]


def _order(places: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The worker first whose exception a rank has raised anew, then ranks, then other workers."""
    shown = " ".join(place["what"] for place in places if not place["worker"])

    def key(place: Dict[str, Any]) -> int:
        return 1 if not place["worker"] else 0 if place["worker"] in shown else 2

    return sorted(places, key=key)


def _note_others(places: List[Dict[str, Any]], chosen: Dict[str, Any]) -> None:
    for place in places:
        if place is not chosen:
            print(f"also held: --pid {place['pid']}: {place['what']}", file=sys.stderr)


def _connected(folder: str, name: str) -> Optional[socket.socket]:
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX)
    try:
        # The paths of sockets have at most 107 bytes.
        connection.connect(f"/proc/self/fd/{at}/{name}")
    except OSError:
        connection.close()
        return None
    finally:
        os.close(at)
    return connection


def _debug(connection: socket.socket, pid: int) -> int:
    about = json.dumps({"term": os.environ.get("TERM") or "dumb"}).encode()
    streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1))
    connection.sendmsg([about], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    connection.settimeout(_PATIENCE)
    try:
        answer = connection.recv(8)
    except socket.timeout:
        print("another debugger is open there: waiting until it is left", file=sys.stderr)
        connection.settimeout(None)
        answer = connection.recv(8)
    connection.settimeout(None)

    def forward(number: int, _: object) -> None:
        if answer == b"begin\n" or number != signal.SIGINT:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(pid, number)

    signal.signal(signal.SIGINT, forward)
    signal.signal(signal.SIGWINCH, forward)
    rest = connection.recv(64) if answer else b""
    return 0 if rest else _fail("the process has ended")


def _fail(text: str) -> int:
    print(f"allranks: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
