"""What is to fail beneath a round of chaos does, and is well again afterwards."""

import errno
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.chaos.beneath import Lacking, disk, network
from tests.support import until


@pytest.mark.slow
def test_a_disk_fills_up_and_stands_still(tmp_path: Path) -> None:
    place = tmp_path / "di'sk x"
    try:
        with disk(place) as found:
            (place / "kept").write_text("x")
            filled = threading.Thread(target=found.fill, args=(1.0,))
            filled.start()
            until(lambda: is_full(place))
            filled.join()
            assert not is_full(place)
            frozen = threading.Thread(target=found.freeze, args=(1.0,))
            frozen.start()
            until(lambda: seconds_to_write(place) > 0.5)
            frozen.join()
            assert (place / "kept").read_text() == "x"
    except Lacking as why:
        pytest.skip(f"this machine lets us have no disk: {why}")
    assert not place.is_mount()


def is_full(place: Path) -> bool:
    try:
        # Each time another: what a file had that is written over may be had again.
        (place / f"{time.monotonic()}").write_bytes(b"x" * 65536)
    except OSError as error:
        return error.errno == errno.ENOSPC
    return False


def seconds_to_write(place: Path) -> float:
    began = time.monotonic()
    (place / "new").write_text("x")
    return time.monotonic() - began


@pytest.mark.slow
def test_a_network_lets_nothing_through_that_has_the_words(tmp_path: Path) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    try:
        with network() as found, socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            its, _ = server.accept()
            its.settimeout(0.5)
            cut = threading.Thread(target=found.cut, args=(2.0, "one", "two"))
            cut.start()
            until(lambda: not comes(ours, its, b"two, one;"))
            ours.close()
            its.settimeout(20.0)
            assert its.recv(9) == b"two, one;", "it was only late"
            cut.join()
            its.close()
    except Lacking as why:
        pytest.skip(f"this machine lets us have no network: {why}")
    assert os.readlink("/proc/thread-self/ns/net") == before


def comes(ours: socket.socket, its: socket.socket, words: bytes) -> bool:
    ours.sendall(words)
    try:
        return its.recv(9) == words
    except TimeoutError:
        return False
