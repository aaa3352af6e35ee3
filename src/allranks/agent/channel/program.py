"""Run a program for a channel: with pipes, or in a terminal of its own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING

from allranks.agent.processes.keeper import end_descendants
from allranks.channel import PIECE, Connection, Frame, Lost, rows_and_columns

if TYPE_CHECKING:
    from allranks.agent.channel.channel_opener import Request

# Bytes of input that wait for a program that does not read.
_FULL = 1 << 20
# Milliseconds for the rest of the output of a program that has ended: a terminal passes it on late.
_REST = 200
# Seconds for a program to end once its client is gone.
_GRACE = 0.5
# As shells exit for a program that cannot be started.
_NOT_FOUND, _NOT_STARTED = 127, 126


def run(connection: Connection, request: Request) -> None:
    """Run the program to its end. Raises Lost once the client is gone; the program may run on."""
    try:
        program = (_in_terminal if request["terminal"] else _with_pipes)(request)
    except OSError as error:
        missing = error.errno == errno.ENOENT
        name = error.filename or request["argv"][0]
        text = f"allranks: {name}: {error.strerror}\n".encode(errors="surrogateescape")
        connection.send(Frame.ERR, text)
        connection.send(Frame.EXIT, b"%d" % (_NOT_FOUND if missing else _NOT_STARTED))
        return
    program.follow(connection)


class _Program:
    """A running program. ``outputs``: where it writes, with the frame for each."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: int, outputs: dict[int, Frame], master: int
    ) -> None:
        self._process, self._stdin, self._master = process, stdin, master
        self._outputs = outputs
        self._waiting = bytearray()
        self._input_ended = False
        self._ended = os.pidfd_open(process.pid)
        for fd in (stdin, *outputs):
            os.set_blocking(fd, False)

    def follow(self, connection: Connection) -> None:
        try:
            while self._process.poll() is None:
                self._step(connection, None)
        except Lost:
            self._hang_up()
            raise
        # What it leaves running would hold its output open.
        end_descendants()
        while self._outputs:
            self._step(connection, _REST)
        code = self._process.returncode
        connection.send(Frame.EXIT, b"%d" % (code if code >= 0 else 128 - code))

    def _hang_up(self) -> None:
        """Tell the program that the client is gone; what is left after a moment is killed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGHUP)
        select.select([self._ended], [], [], _GRACE)

    def _step(self, connection: Connection, patience: int | None) -> None:
        """Pass on what there is, and wait for more if there is none. If nothing comes within so
        many milliseconds, that was all."""
        poll = select.poll()
        poll.register(connection, connection.events(read=len(self._waiting) < _FULL))
        for fd in {self._stdin, *self._outputs}:
            events = select.POLLIN * (fd in self._outputs and not connection.is_full)
            events |= select.POLLOUT * (fd == self._stdin and bool(self._waiting))
            if events:
                poll.register(fd, events)
        if patience is None:
            poll.register(self._ended, select.POLLIN)
        ready = dict(poll.poll(None if connection.is_full else patience))
        connection.flush()
        if ready.get(connection.fileno(), 0) & ~select.POLLOUT:
            for kind, data in connection.receive():
                self._take(kind, data)
        self._write()
        for fd in [*self._outputs]:
            if ready.get(fd, 0) & ~select.POLLOUT and not connection.is_full:
                self._read(fd, connection)
        if not ready:
            self._outputs.clear()

    def _take(self, kind: Frame, data: bytes) -> None:
        if kind is Frame.DATA and self._stdin >= 0:
            self._waiting += data
        elif kind is Frame.EOF:
            self._input_ended = True
        elif kind is Frame.RESIZE:
            resize(self._master, *rows_and_columns(data))
        elif kind is Frame.SIGNAL and data.isdigit() and int(data) < signal.NSIG:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, int(data))

    def _write(self) -> None:
        try:
            while self._waiting:
                with memoryview(self._waiting)[:PIECE] as view:
                    count = os.write(self._stdin, view)
                del self._waiting[:count]
        except BlockingIOError:
            return
        except OSError:  # it has closed its input
            self._waiting.clear()
            self._input_ended = True
        if self._input_ended and self._process.stdin is not None:  # not of a terminal
            self._process.stdin.close()
            self._stdin = -1

    def _read(self, fd: int, connection: Connection) -> None:
        try:
            data = os.read(fd, PIECE)
        except BlockingIOError:
            return
        except OSError:  # EIO: nobody has the terminal open any more
            data = b""
        if data:
            connection.send(self._outputs[fd], data)
        else:
            del self._outputs[fd]


def _with_pipes(request: Request) -> _Program:
    process = _start(request, subprocess.PIPE, None)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    outputs = {process.stdout.fileno(): Frame.OUT, process.stderr.fileno(): Frame.ERR}
    return _Program(process, process.stdin.fileno(), outputs, -1)


def _in_terminal(request: Request) -> _Program:
    master, slave = os.openpty()
    try:
        process = _start(request, slave, _controlling_terminal)
    finally:
        os.close(slave)
    return _Program(process, master, {master: Frame.OUT}, master)


def _start(
    request: Request, streams: int, preexec_fn: Callable[[], None] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        request["argv"],
        cwd=request["cwd"],
        env=request["env"],
        stdin=streams,
        stdout=streams,
        stderr=streams,
        start_new_session=True,
        preexec_fn=preexec_fn,
    )


def _controlling_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def resize(terminal: int, rows: int, columns: int) -> None:
    """Set the size of a terminal; its programs get SIGWINCH. Nothing without one."""
    if terminal >= 0:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
