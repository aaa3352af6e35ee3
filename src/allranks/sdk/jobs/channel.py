"""Get into a running job: open a channel, run programs there, and lead a port here."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api import routes
from allranks.channel import PIECE, PROTOCOL, Connection, Frame, Lost, relay
from allranks.errors import AllranksError, Conflict, ServerError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.http_client import Client


# Bytes of a program's output that `execute` keeps.
_MOST = 256 << 20
# Seconds until a job whose node has closed a channel may have ended.
_END = 3


class Completed(NamedTuple):
    """How a program in a job has ended, and what it wrote."""

    exit_code: int
    stdout: bytes
    stderr: bytes


def exit_code(data: bytes) -> int:
    """Of an EXIT frame; 255, as ssh's, if it holds none."""
    return int(data) if re.fullmatch(rb"[0-9]{1,3}", data) else 255


class Channel:
    """An open channel into a job; ``where`` is its rank, or node, in words. Raises AllranksError
    if the job cannot be entered. ``connect`` makes a client of its server."""

    def __init__(
        self,
        name: str,
        rank: int | None,
        node: int | None,
        connect: Callable[[], Client] = find_server.connect,
        **what: Any,
    ) -> None:
        self.name, self._connect, self._of_hold = name, connect, "debug" in what
        with connect() as client:
            request = {"rank": rank, "node": node, **what}
            made = client.ask(routes.create_channel, name, body=request)
            of_node = made["rank"] is None
            self.where = f"node {made['node']}" if of_node else f"rank {made['rank']}"
            self._number = str(made["number"])
            self.connection = self._connection(client, 0)

    def connect(self, index: int) -> Connection:
        """One more connection, for a port."""
        with self._connect() as client:
            return self._connection(client, index)

    def _connection(self, client: Client, index: int) -> Connection:
        url = routes.connect_channel.url(self.name, self._number, str(index))
        return Connection(client.upgrade(url, PROTOCOL))

    def lost(self) -> AllranksError:
        if end := self._end():
            return Conflict(end, hint=f"allranks job show {self.name}")
        message = f"the connection to {self.where} of {self.name} has ended"
        hint = f"the job, its attempt or the server may have: allranks job show {self.name}"
        return ServerError(message, hint=hint)

    def _end(self) -> str:
        """What has ended, of the job or its hold; empty if neither has, or the server is away."""
        try:
            with self._connect() as client:
                job = client.ask(routes.wait_for_job, self.name, timeout=_END)
        except AllranksError:
            return ""
        end = f"{self.name} is {job['status']}" if job["ended_at"] is not None else ""
        if self._of_hold:
            return f"the hold of {self.name} has ended" + (f": {end}" if end else "")
        return end


class Follower:
    """Follows the program of a channel: ``write`` gets what it writes (OUT, ERR) and notes (NOTE),
    ``stdin`` is what it reads. Overridden for a terminal."""

    def __init__(
        self, channel: Channel, write: Callable[[Frame, bytes], None], stdin: int | None
    ) -> None:
        self._channel, self._write, self._stdin = channel, write, stdin
        self.connection = channel.connection

    def read(self, data: bytes) -> bytes:
        """What of the input the program gets."""
        return data

    def woken(self) -> None:
        """A signal has come: see `run`."""

    def run(self, wakes: int | None = None) -> int:
        """Return the exit code. ``wakes`` becomes readable when a signal has come. Raises
        AllranksError if the connection is lost."""
        try:
            while True:
                code = self._step(wakes)
                if code is not None:
                    return code
        except Lost:
            raise self._channel.lost() from None
        finally:
            self.connection.close()

    def _step(self, wakes: int | None) -> int | None:
        poll = select.poll()
        poll.register(self.connection, self.connection.events())
        if self._stdin is not None and not self.connection.is_full:
            poll.register(self._stdin, select.POLLIN)
        if wakes is not None:
            poll.register(wakes, select.POLLIN)
        ready = dict(poll.poll())
        if wakes in ready and wakes is not None:
            os.read(wakes, 4096)
            self.woken()
        if self._stdin in ready and self._stdin is not None:
            self._read_input(self._stdin)
        with contextlib.suppress(Lost):  # what it sent before has to be read first
            self.connection.flush()
        if ready.get(self.connection.fileno(), 0) & ~select.POLLOUT:
            for kind, data in self.connection.receive():
                if kind is Frame.EXIT:
                    return exit_code(data)
                if kind is Frame.FAILED:
                    hint = f"see `allranks job show {self._channel.name}`"
                    raise AllranksError(data.decode(errors="replace"), hint=hint)
                self._write(kind, data)
        return None

    def _read_input(self, stdin: int) -> None:
        try:
            data = os.read(stdin, PIECE)
        except OSError:
            data = b""
        if not data:
            self._stdin = None
            self.connection.send(Frame.EOF)
        elif data := self.read(data):
            self.connection.send(Frame.DATA, data)


def execute(
    name: str,
    command: Sequence[str],
    *,
    input: bytes = b"",
    rank: int | None = None,
    node: int | None = None,
) -> Completed:
    """Run a program in a job and wait for its end. Raises AllranksError, also for more than 256 MiB
    of output."""
    written: dict[Frame, bytearray] = {Frame.OUT: bytearray(), Frame.ERR: bytearray()}

    def write(kind: Frame, data: bytes) -> None:
        if kind in written:
            written[kind] += data
        if sum(map(len, written.values())) > _MOST:
            message = f"the program in {name} writes more than {_MOST >> 20} MiB of output"
            hint = "let it write to a file, and copy that: allranks job cp"
            raise AllranksError(message, hint=hint)

    stdin = os.memfd_create("input")
    try:
        with open(stdin, "r+b", buffering=0, closefd=False) as file:
            file.write(input)
            file.seek(0)
        channel = Channel(name, rank, node, command=[*map(str, command)])
        code = Follower(channel, write, stdin).run()
    finally:
        os.close(stdin)
    return Completed(code, bytes(written[Frame.OUT]), bytes(written[Frame.ERR]))


class PortForward:
    """Leads connections to ``listener`` to the port of a job, a thread for each. ``failed`` gets
    why one could not be made."""

    def __init__(
        self, channel: Channel, listener: socket.socket, failed: Callable[[str], None]
    ) -> None:
        self._channel, self._listener, self._failed = channel, listener, failed
        self._count = 0

    def serve(self) -> None:
        """Until the job, or its attempt, has ended. Raises AllranksError then."""
        control = self._channel.connection
        try:
            while True:
                poll = select.poll()
                poll.register(control, control.events())
                poll.register(self._listener, select.POLLIN)
                ready = dict(poll.poll())
                control.flush()
                if control.fileno() in ready:
                    self._raise_failure(control)
                if self._listener.fileno() in ready:
                    accepted, _ = self._listener.accept()
                    self._count += 1
                    control.send(Frame.OPEN, b"%d" % self._count)
                    lead = threading.Thread(
                        target=self._lead, args=(accepted, self._count), daemon=True
                    )
                    lead.start()
        except Lost:
            raise self._channel.lost() from None
        finally:
            control.close()

    def _raise_failure(self, control: Connection) -> None:
        for kind, data in control.receive():
            if kind is Frame.FAILED:
                hint = f"see `allranks job show {self._channel.name}`"
                raise AllranksError(data.decode(errors="replace"), hint=hint)

    def _lead(self, accepted: socket.socket, index: int) -> None:
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            relay(self._channel.connect(index), accepted, self._failed)
        except AllranksError as error:
            accepted.close()
            self._failed(error.message)
