"""What a program in a job may send to who runs it."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from allranks.channel import Connection, Frame, frame
from allranks.errors import AllranksError
from allranks.sdk.jobs import channel


def test_output_is_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    def run(out: int) -> channel.Completed:
        ours, theirs = socket.socketpair()
        made = SimpleNamespace(connection=Connection(ours), name="job")
        monkeypatch.setattr(channel, "Channel", lambda *_, **__: made)
        with theirs:
            frames = (frame(Frame.OUT, b"o" * out), frame(Frame.ERR, b"e"), frame(Frame.EXIT, b"3"))
            theirs.sendall(b"".join(frames))
            return channel.execute("job", ["true"])

    monkeypatch.setattr(channel, "_MOST", 1000)
    assert run(999) == (3, b"o" * 999, b"e")
    with pytest.raises(AllranksError, match="writes more than"):
        run(1000)
