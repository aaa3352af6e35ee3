"""A channel into a running job: frames in both directions over one connection.

A client and a helper of the agent exchange them; the server in between passes bytes on and reads
none. A frame is one byte for its kind, four for its length, and its data.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from enum import IntEnum

# The name of the protocol in the header `upgrade` of the request that becomes a channel.
PROTOCOL = "allranks-channel"
# The most bytes that are read at once.
PIECE = 1 << 18
# Bytes that wait to be sent beyond which nothing more is to be read for them.
_FULL = 1 << 20
# The largest frame of any sender of ours is a piece; a longer one is no frame.
_LONGEST = 1 << 20
_HEAD = struct.Struct("!BI")
_BUSY = (BlockingIOError, InterruptedError)
# Seconds without a sign of life of the other host until the kernel asks, between two questions, and
# how many may stay without an answer.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))


class Frame(IntEnum):
    """The kinds of frames, with their data."""

    DATA = 0  # input of the program; of a port: bytes in either direction
    OUT = 1  # output of the program, of a terminal also its errors
    ERR = 2
    EOF = 3  # no more DATA follows
    RESIZE = 4  # rows and columns of the terminal: `size`
    SIGNAL = 5  # the number of a signal for the program, as text
    EXIT = 6  # the exit code, as text; the last frame of a program
    NOTE = 7  # a sentence for the user
    FAILED = 8  # why it could not be done; the last frame
    OPEN = 9  # the number of a new connection to the port, as text


def frame(kind: Frame, data: bytes) -> bytes:
    """The bytes of a frame."""
    return _HEAD.pack(kind, len(data)) + data


class Lost(ConnectionError):
    """The other end is gone."""


def take_frames(buffer: bytearray) -> list[tuple[Frame, bytes]]:
    """Take the complete frames out of what has arrived. Raises Lost if it is no channel."""
    frames: list[tuple[Frame, bytes]] = []
    start = 0
    while len(buffer) >= start + _HEAD.size:
        kind, length = _HEAD.unpack_from(buffer, start)
        if kind >= len(Frame) or length > _LONGEST:
            raise Lost("what the other end sends is not a channel")
        end = start + _HEAD.size + length
        if len(buffer) < end:
            break
        frames.append((Frame(kind), bytes(buffer[start + _HEAD.size : end])))
        start = end
    del buffer[:start]
    return frames


def keep_alive(connection: socket.socket) -> None:
    """Notice a host that has vanished, in a minute and a half, and send small frames at once."""
    with contextlib.suppress(OSError):  # not TCP
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in _KEEP_ALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def size(rows: int, columns: int) -> bytes:
    """The data of a RESIZE frame."""
    return struct.pack("!HH", min(rows, 0xFFFF), min(columns, 0xFFFF))


def rows_and_columns(data: bytes) -> tuple[int, int]:
    """The same, read. Raises Lost if it is malformed."""
    if len(data) != 4:
        raise Lost("a size of a terminal is malformed")
    rows, columns = struct.unpack("!HH", data)
    return rows, columns


class Connection:
    """One end of a channel, for one thread with a `select.poll` of its own. All methods raise Lost
    once the other end is gone."""

    def __init__(self, connected: socket.socket) -> None:
        keep_alive(connected)
        connected.setblocking(False)
        self._socket = connected
        self._in, self._out = bytearray(), bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_full(self) -> bool:
        """Whether the other end reads too slowly for more."""
        return len(self._out) >= _FULL

    def events(self, *, read: bool = True) -> int:
        """What to poll for. Without ``read`` only the end of the other end counts."""
        return (select.POLLIN if read else select.POLLRDHUP) | (select.POLLOUT * bool(self._out))

    def send(self, kind: Frame, data: bytes = b"") -> None:
        """Send a frame; what the kernel does not take now goes with the next `flush`."""
        self._out += _HEAD.pack(kind, len(data))
        self._out += data
        self.flush()

    def flush(self) -> None:
        try:
            while self._out:
                with memoryview(self._out)[: 2 * PIECE] as view:
                    sent = self._socket.send(view)
                del self._out[:sent]
        except _BUSY:
            pass
        except OSError as error:
            if not _wants_more(error):
                raise Lost(str(error)) from None

    def receive(self) -> list[tuple[Frame, bytes]]:
        """The frames that have arrived. Raises Lost at the end, once all have been returned."""
        ended = not self._read()
        frames = take_frames(self._in)
        if ended and not frames:
            raise Lost("the connection was closed")
        return frames

    def _read(self) -> bool:
        """Read what is there, within bounds; of TLS all that is decrypted, which `poll` does not
        see. Return whether more may come."""
        count = 0
        while count < _FULL or (hasattr(self._socket, "pending") and self._socket.pending()):
            try:
                piece = self._socket.recv(PIECE)
            except _BUSY:
                return True
            except OSError as error:
                return _wants_more(error)
            if not piece:
                return False
            self._in += piece
            count += len(piece)
        return True

    def finish(self, seconds: float | None = 10.0) -> None:
        """Send what is left, and close. ``seconds``: how long the other end may read nothing, None
        for as long as it is there."""
        with contextlib.suppress(Lost):
            while self._out:
                poll = select.poll()
                poll.register(self, select.POLLOUT)
                if not poll.poll(None if seconds is None else seconds * 1000):
                    break
                self.flush()
        self._socket.close()

    def close(self) -> None:
        self._socket.close()


def _wants_more(error: OSError) -> bool:
    """Whether TLS waits for the network, and nothing has failed."""
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def relay(
    connection: Connection, other: socket.socket, failed: Callable[[str], None] = lambda _: None
) -> None:
    """Pass bytes between a channel and a connection until both directions have ended, or one end is
    gone. Closes both. ``failed`` gets why the other end of the channel has none."""
    other.setblocking(False)
    waiting = bytearray()  # for `other`
    reading, more, open_ = True, True, True  # from `other`; from the channel; to `other`
    try:
        while reading or open_:
            poll = select.poll()
            poll.register(connection, connection.events(read=len(waiting) < _FULL))
            events = select.POLLIN * (reading and not connection.is_full)
            poll.register(other, events | select.POLLOUT * bool(waiting))
            ready = dict(poll.poll())
            connection.flush()
            if ready.get(connection.fileno(), 0) & ~select.POLLOUT:
                for kind, data in connection.receive():
                    waiting += data if kind is Frame.DATA else b""
                    more = more and kind is not Frame.EOF
                    if kind is Frame.FAILED:
                        failed(data.decode(errors="replace"))
            if reading and ready.get(other.fileno(), 0) & ~select.POLLOUT:
                with contextlib.suppress(*_BUSY):
                    data = other.recv(PIECE)
                    reading = bool(data)
                    connection.send(Frame.DATA if data else Frame.EOF, data)
            if waiting:
                with contextlib.suppress(*_BUSY):
                    with memoryview(waiting) as view:
                        sent = other.send(view)
                    del waiting[:sent]
            if open_ and not more and not waiting:
                open_ = False
                other.shutdown(socket.SHUT_WR)
    except OSError:  # also Lost
        if not more:  # the channel's other end had sent all, and is gone; a slow reader gets it
            with contextlib.suppress(OSError):
                other.setblocking(True)
                other.sendall(waiting)
    finally:
        connection.finish(None)
        other.close()
