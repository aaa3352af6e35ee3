"""A server of ssh for one client, that turns its sessions and connections into channels."""

from __future__ import annotations

import asyncio
import contextlib
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import asyncssh

from allranks.channel import Connection, Frame, Lost, size
from allranks.cli.output.show import one_line
from allranks.cli.ssh.keys import Entry
from allranks.errors import AllranksError
from allranks.sdk.jobs.channel import Channel, exit_code

# Names of the rank's own node.
_LOCAL = ("localhost", "127.0.0.1", "::1", "")
# As ssh itself exits for what is not the program's.
_FAILED = 255
# OpenSSH's client tells only its own server that nobody reads the output any more, with the request
# of that name, which asyncssh looks up on the channel.
_VERSION = "OpenSSH_9.2-allranks"
_UNREAD = "_process_eow_at_openssh_dot_com_request"
_SHELL = "/bin/bash"
T = TypeVar("T")


async def serve(entry: Entry, connected: socket.socket, authorized: str) -> None:
    """Until the client leaves."""
    connection = await asyncssh.run_server(
        connected,
        server_factory=lambda: _Server(entry),
        server_host_keys=[str(entry.folder / "host_key")],
        authorized_client_keys=asyncssh.import_authorized_keys(authorized),
        password_auth=False,
        kbdint_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        allow_scp=False,
        line_editor=False,
        compression_algs=None,
        encoding=None,
        server_version=_VERSION,
    )
    await connection.wait_closed()


class _Server(asyncssh.SSHServer):
    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._ports: dict[int, Channel] = {}
        self._count = 0
        self._opening = asyncio.Lock()

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Session(self._entry)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Any:
        if dest_host not in _LOCAL:
            reason = f"only ports of the rank's node can be reached, as localhost: not {dest_host}"
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
        return self._connected(dest_port)

    async def _connected(self, port: int) -> asyncssh.SSHTCPSession[bytes]:
        self._count += 1
        index = self._count
        try:
            async with self._opening:
                control = await self._control(port)
            control.connection.send(Frame.OPEN, b"%d" % index)
            return _Port(await _in_thread(lambda: control.connect(index)))
        except (AllranksError, Lost) as error:
            _tell(str(error))
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None

    async def _control(self, port: int) -> Channel:
        """The channel to that port, opened once."""
        if port in self._ports:
            with contextlib.suppress(Lost):
                self._ports[port].connection.receive()
                return self._ports[port]
        entry = self._entry
        opened = await _in_thread(lambda: Channel(entry.job, entry.rank, entry.node, port=port))
        self._ports[port] = opened
        return opened


class _Bridge:
    """Passes bytes between a channel of ssh's and one of ours."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chan: Any = None
        self._connection: Connection | None = None
        self._early: list[tuple[Frame, bytes]] = []

    def take(self, kind: Frame, data: bytes) -> None:
        """A frame from the job."""
        raise NotImplementedError

    def lost(self) -> None:
        """The job's end is gone."""
        raise NotImplementedError

    def join(self, connection: Connection) -> None:
        if self._chan.is_closing():  # the client has left meanwhile
            connection.close()
            return
        self._connection = connection
        early, self._early = self._early, []
        for kind, data in early:
            self.send(kind, data)
        self.resume_writing()
        self._receive()

    def send(self, kind: Frame, data: bytes = b"") -> None:
        """To the job; what comes before it is connected waits."""
        if self._connection is None:
            self._early.append((kind, data))
            self._chan.pause_reading()
            return
        with contextlib.suppress(Lost):  # what it sent before has to be read first
            self._connection.send(kind, data)
        self._watch()

    def connection_made(self, chan: Any) -> None:
        self._chan = chan

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.send(Frame.DATA, data)

    def eof_received(self) -> bool:
        self.send(Frame.EOF)
        return True

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._loop.remove_reader(self._connection.fileno())

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._loop.add_reader(self._connection.fileno(), self._receive)

    def leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._loop.remove_reader(connection.fileno())
            self._loop.remove_writer(connection.fileno())
            connection.close()

    def _receive(self) -> None:
        try:
            frames = [] if self._connection is None else self._connection.receive()
        except Lost:
            self.leave()
            self.lost()
            return
        for kind, data in frames:
            self.take(kind, data)

    def _watch(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if connection.events() & select.POLLOUT:
            self._loop.add_writer(connection.fileno(), self._flush)
        else:
            self._loop.remove_writer(connection.fileno())
        if connection.is_full:
            self._chan.pause_reading()
        else:
            self._chan.resume_reading()

    def _flush(self) -> None:
        assert self._connection is not None
        try:
            self._connection.flush()
        except Lost:
            self._loop.remove_writer(self._connection.fileno())
        else:
            self._watch()


class _Session(_Bridge, asyncssh.SSHServerSession[bytes]):
    """A program, a shell or sftp."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self._entry = entry
        self._what: dict[str, Any] = {}
        self._terminal = False

    def connection_made(self, chan: Any) -> None:
        super().connection_made(chan)
        setattr(chan, _UNREAD, lambda _: self._send_signal("PIPE"))

    def pty_requested(self, *_: Any) -> bool:
        self._terminal = True
        return True

    def shell_requested(self) -> bool:
        self._what = {"terminal": self._terminal}
        return True

    def exec_requested(self, command: str) -> bool:
        self._what = {"command": [_SHELL, "-c", command], "terminal": self._terminal}
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self._what = {"sftp": True}
        return subsystem == "sftp"

    def session_started(self) -> None:
        self._task = self._loop.create_task(self._open())

    async def _open(self) -> None:
        entry = self._entry
        try:
            channel = await _in_thread(
                lambda: Channel(entry.job, entry.rank, entry.node, **self._what)
            )
        except AllranksError as error:
            self._end(str(error))
            return
        if self._terminal:
            columns, rows, *_ = self._chan.get_terminal_size()
            channel.connection.send(Frame.RESIZE, size(rows, columns))
        self.join(channel.connection)

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self.send(Frame.RESIZE, size(height, width))

    def signal_received(self, signal: str) -> None:
        self._send_signal(signal)

    def _send_signal(self, name: str) -> bool:
        number = getattr(signal, f"SIG{name}", None)
        if number is not None:
            self.send(Frame.SIGNAL, b"%d" % number)
        return number is not None

    def take(self, kind: Frame, data: bytes) -> None:
        if kind is Frame.OUT:
            self._chan.write(data)
        elif kind is Frame.ERR:
            self._chan.write_stderr(data)
        elif kind is Frame.NOTE:
            self._note(f"note: {data.decode(errors='replace')}")
        elif kind is Frame.FAILED:
            self._end(data.decode(errors="replace"))
        elif kind is Frame.EXIT:
            self.leave()
            self._chan.exit(exit_code(data))

    def lost(self) -> None:
        self._end(f"the connection to {self._entry.job} has ended")

    def _end(self, why: str) -> None:
        self.leave()
        if not self._chan.is_closing():
            self._note(f"allranks: {why}")
            self._chan.exit(_FAILED)

    def _note(self, text: str) -> None:
        self._chan.write_stderr(f"{one_line(text)}\r\n".encode())


class _Port(_Bridge, asyncssh.SSHTCPSession[bytes]):
    """A connection to a port of the node."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connecting = connection
        self._ended = [False, False]

    def session_started(self) -> None:
        self.join(self._connecting)

    def eof_received(self) -> bool:
        super().eof_received()
        self._half_ended(0)
        return True

    def take(self, kind: Frame, data: bytes) -> None:
        if kind is Frame.DATA:
            self._chan.write(data)
        elif kind is Frame.EOF:
            self._chan.write_eof()
            self._half_ended(1)
        elif kind is Frame.FAILED:
            _tell(data.decode(errors="replace"))

    def lost(self) -> None:
        self._chan.close()

    def _half_ended(self, half: int) -> None:
        self._ended[half] = True
        if all(self._ended):
            self._chan.close()


def _tell(text: str) -> None:
    print(one_line(f"allranks: {text}"), file=sys.stderr, end="\r\n")


async def _in_thread(call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, call)
