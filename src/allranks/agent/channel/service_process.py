"""The helper of one service: `python -m allranks.agent.channel.service_process`, with a request on
standard input. It writes what becomes of the service, a line each: `[state, message]`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import folder_trees, unix_sockets
from allranks.agent.channel.channel_process import end_in_container
from allranks.agent.processes.keeper import become_subreaper, end_descendants
from allranks.agent.processes.ranks import last_lines

if TYPE_CHECKING:
    from allranks.agent.channel.services import ServiceRequest

# Seconds between two looks whether it listens, and to end what it has started.
_LOOK, _END = 0.25, 10.0
# Seconds after which one that does not listen says so.
_LATE = 10.0
# Seconds until an end by a signal is told.
_MOMENT = 1.0


def main() -> int:
    request: ServiceRequest = json.loads(sys.stdin.buffer.read())
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _run(request)
    finally:
        end_descendants(_END)
        if request["end"]:
            end_in_container(request["script"], request["end"])
    return 0


def _run(request: ServiceRequest) -> None:
    log = Path(request["log"])
    try:
        with folder_trees.open_file(log, "wb") as file:
            process = subprocess.Popen(
                request["argv"],
                cwd=request["cwd"],
                env=request["env"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        _say("Failed", f"it does not start: {error.strerror}")
        return
    ended = os.pidfd_open(process.pid)
    late = time.monotonic() + _LATE
    while not select.select([ended], [], [], _LOOK)[0]:
        if _listens(request):
            _say("Running", "")
            break
        if time.monotonic() > late:
            late = float("inf")
            where = f"127.0.0.1:{request['port']}" if request["port"] else "its socket"
            last = last_lines(log)[-1:]
            _say("Starting", ": ".join([f"it does not listen on {where} yet", *last]))
    code = process.wait()
    if code < 0 or code > 128:
        # The end of the attempt kills services and this helper, in any order: it is no failure.
        time.sleep(_MOMENT)
    lines = last_lines(log)
    how = f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
    _say("Failed" if code else "Completed", f"{how}: {lines[-1]}" if lines else how)


def _listens(request: ServiceRequest) -> bool:
    with contextlib.suppress(OSError):
        if request["socket"]:
            unix_sockets.connect(f"{request['folder']}/{request['socket']}").close()
        else:
            socket.create_connection(("127.0.0.1", request["port"]), _LOOK).close()
        return True
    return False


def _say(state: str, message: str) -> None:
    print(json.dumps([state, message[:1000]]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
