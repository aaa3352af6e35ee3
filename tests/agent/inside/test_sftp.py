"""What a client of our SFTP server may open."""

import os
import struct
from pathlib import Path

from allranks.agent.inside.allranks_sftp import _Packet, _Server, _text

READ, WRITE = 1, 2
STATUS, HANDLE = 101, 102


def open_file(path: Path, flags: int) -> bytes:
    """The answer to the request to open that file."""
    packet = struct.pack("!I", 7) + _text(os.fsencode(path)) + struct.pack("!II", flags, 0)
    return _Server().answer(3, _Packet(packet))


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    for flags in (READ, WRITE, READ | WRITE):
        assert open_file(tmp_path / "pipe", flags)[0] == STATUS
        assert open_file(tmp_path / "file", flags)[0] == HANDLE
    assert b"it is a pipe" in open_file(tmp_path / "pipe", READ)
