"""What OpenSSH starts to connect to a job: `python -m allranks.cli.ssh.proxy NAME [--rank R]`.

It is the server of ssh itself: it speaks with the client on its standard input and output, and what
the client asks for it does through channels into the job. So nodes need no ssh, and no port.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import threading

from allranks.api import routes
from allranks.cli.output.errors import print_error
from allranks.cli.ssh import keys
from allranks.core.job.services import public_keys
from allranks.errors import AllranksError, Conflict, NotFound
from allranks.sdk.connection import find_server
from allranks.statuses import TERMINAL

_PIECE = 1 << 18


def main() -> int:
    parser = argparse.ArgumentParser(prog="allranks.cli.ssh.proxy")
    parser.add_argument("name")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--node", type=int)
    options = parser.parse_args()
    entry = keys.Entry(options.name, options.rank, options.node)
    try:
        keys.library()
        authorized = _authorized(entry)
        from allranks.cli.ssh import server  # lazy: an extra

        own, other = socket.socketpair()
        ended = threading.Event()
        for pump in (_read_input, _write_output):
            threading.Thread(target=pump, args=(other, ended), daemon=True).start()
        asyncio.run(server.serve(entry, own, authorized))
        ended.wait(5.0)
    except AllranksError as error:
        print_error(error, False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _authorized(entry: keys.Entry) -> str:
    """The public keys that may log in: the entry's own, and those in the job file. Raises
    AllranksError, and removes the entries of a job that has ended."""
    try:
        job = find_server.ask(routes.show_job, entry.job)
        if job["status"] in TERMINAL:
            hint = f"to run it again: allranks job restart {entry.job}"
            raise Conflict(f"{entry.job} has ended, and nobody can enter it", hint=hint)
    except (Conflict, NotFound):
        keys.remove(entry.job)
        raise
    services = (job["spec"].get("services") or {}).values()
    of_job_file = [
        line
        for service in services
        for line in public_keys(str(service.get("ssh_public_keys") or ""))
    ]
    try:
        return "\n".join([(entry.folder / "key.pub").read_text(), *of_job_file])
    except OSError:
        hint = f"write it again: allranks job ssh-config {entry.job}"
        raise NotFound(f"{entry.host} has no key any more", hint=hint) from None


def _read_input(other: socket.socket, ended: threading.Event) -> None:
    try:
        while data := os.read(0, _PIECE):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has ended


def _write_output(other: socket.socket, ended: threading.Event) -> None:
    try:
        while data := other.recv(_PIECE):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
    except OSError:
        other.close()  # the client has gone
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
