"""What was sent through a channel to a connection arrives, however slowly it is read."""

from __future__ import annotations

import socket
import threading

from allranks.channel import PIECE, Connection, Frame, relay


def test_what_a_slow_reader_has_not_read_outlives_the_channel():
    far, near = socket.socketpair()
    other, reader = socket.socketpair()
    data = b"ab" * (2 * PIECE)
    threads = [threading.Thread(target=relay, args=(Connection(near), other), daemon=True)]
    threads.append(
        threading.Thread(target=send_and_close, args=(Connection(far), data), daemon=True)
    )
    reader.shutdown(socket.SHUT_WR)
    for thread in threads:
        thread.start()
    threads[1].join(30)  # the channel's other end has sent all and is gone; nothing was read yet
    with reader.makefile("rb") as file:
        assert len(file.read()) == len(data)
    reader.close()
    threads[0].join(30)


def send_and_close(connection: Connection, data: bytes) -> None:
    for start in range(0, len(data), PIECE):
        connection.send(Frame.DATA, data[start : start + PIECE])
    connection.send(Frame.EOF)
    connection.finish(None)
