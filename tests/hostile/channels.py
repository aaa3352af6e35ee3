"""A channel into a job (`job exec`, `job cp`, ssh and sftp by `job ssh-config`): a node or a server
that sends frames of its own."""

from __future__ import annotations

import contextlib
import random
import socket
from types import SimpleNamespace
from typing import Any

from allranks.channel import PIECE, Connection, Frame, frame
from allranks.cli.output import show
from allranks.cli.ssh.keys import Entry
from allranks.cli.ssh.server import _Session
from allranks.errors import AllranksError
from allranks.sdk.jobs.channel import Follower
from tests.hostile.harness import Outcome, Place

TRIES = 60
_DATA = [
    *(b"", b"0", b"7", b"-1", b"999999", b"9" * 5000, b"\xff", b"1e9", b"0x1", "٣".encode()),
    *(b"\x1b]0;title\x07\x1b[2J", b"a\r\nb\x9b", "\u202e".encode(), b"x" * PIECE),
]


def attempt(chance: random.Random, place: Place) -> Outcome:
    sent = b"".join(
        frame(chance.choice(list(Frame)), chance.choice(_DATA)) for _ in range(chance.randint(0, 9))
    )
    if chance.random() < 0.3:
        sent += chance.randbytes(40)
    if chance.random() < 0.2:
        sent = sent[: len(sent) // 2]
    take = chance.choice([_by_command, _by_ssh])
    ours, theirs = socket.socketpair()
    with contextlib.closing(ours), theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        theirs.settimeout(0)
        with contextlib.suppress(OSError):
            theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        return Outcome(said=take(Connection(ours)))


def _by_command(connection: Connection) -> str:
    lost = AllranksError("the connection has ended")
    channel: Any = SimpleNamespace(connection=connection, name="job", lost=lambda: lost)
    try:
        code = Follower(channel, lambda kind, data: None, None).run()
    except AllranksError as error:
        return "\n".join(show.safe_lines(str(error)))
    assert 0 <= code < 1000
    return f"ended with {code}"


class _Chan:
    """OpenSSH's end of a session: what it shows that is not the program's own output."""

    def __init__(self) -> None:
        self.said, self.code, self.closed = "", None, False

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)

    def write_stderr(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        if text.startswith(("allranks: ", "note: ")):
            self.said += text.removesuffix("\r\n") + "\n"

    def write_eof(self) -> None:
        pass

    def exit(self, code: int) -> None:
        assert 0 <= code < 2**32
        self.code, self.closed = code, True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def _by_ssh(connection: Connection) -> str:
    chan = _Chan()
    loop: Any = SimpleNamespace(
        add_reader=lambda *_: None, remove_reader=lambda *_: None, remove_writer=lambda *_: None
    )
    bridge: Any = object.__new__(_Session)
    bridge._entry, bridge._chan, bridge._loop = Entry("job", None, None), chan, loop
    bridge._connection = connection
    while bridge._connection is not None:
        bridge._receive()
    assert chan.closed
    return chan.said or "ended"
