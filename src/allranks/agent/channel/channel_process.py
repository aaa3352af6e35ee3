"""The helper of one channel, `python -m allranks.agent.channel.channel_process`, with a request on
standard input. It ends with its connection, and everything that it started with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from allranks.agent.channel.connect import connect
from allranks.agent.processes.keeper import become_subreaper, end_descendants
from allranks.channel import Connection, Frame, Lost
from allranks.errors import AllranksError

if TYPE_CHECKING:
    from allranks.agent.channel.channel_opener import Request

# Seconds to end what it started.
_END = 10.0


def main() -> int:
    request: Request = json.loads(sys.stdin.buffer.read())
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        connection = connect(request, 0)
    except AllranksError:
        return 1  # the client has gone, or the server
    try:
        with contextlib.suppress(Lost):
            _serve(connection, request)
    finally:
        end_descendants(_END)
        connection.finish()
    if request["end"]:  # after a signal the container ends, too
        end_in_container(request["script"], request["end"])
    return 0


def end_in_container(script: str, end: list[str]) -> None:
    """End what a program has left in the container, and remove its script."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        os.unlink(script)
        subprocess.run(end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_END)


def _serve(connection: Connection, request: Request) -> None:
    if request["refusal"]:
        connection.send(Frame.FAILED, request["refusal"].encode())
        return
    if request["port"] is not None or request["socket"]:
        from allranks.agent.channel import port  # lazy: threads

        port.serve(connection, request)
        return
    from allranks.agent.channel import program  # lazy: ports need none

    if request["note"]:
        connection.send(Frame.NOTE, request["note"].encode())
    program.run(connection, request)


if __name__ == "__main__":
    sys.exit(main())
