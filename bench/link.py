"""A link of some rate and delay between a client and a port of this machine, in a process of its
own: what netem does, for kernels without it.

Per direction the bytes of all connections share the rate, and each chunk comes out half a round
trip after it has passed. The first bytes of a connection wait one round trip more, as its handshake
would. TCP itself runs on loopback at both ends: its slow start, losses and windows are not shown.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

# Bytes read at a time, and bytes of one connection on their way: more than 1 Gbit/s x 20 ms.
_CHUNK, _BUFFER = 64 << 10, 4 << 20
# When they come out, and what.
_Chunks = queue.Queue[tuple[float, bytes]]


@contextlib.contextmanager
def link(port: int, megabits: float, round_trip_ms: float) -> Iterator[int]:
    """The port of a link to ``port``."""
    words = [sys.executable, "-m", "bench.link", str(port), str(megabits), str(round_trip_ms)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


class _Direction:
    """One direction: when bytes that come now have passed."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate, self._free_at = bytes_per_second, 0.0
        self._lock = threading.Lock()

    def passed(self, size: int) -> float:
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            return self._free_at


def _read(
    source: socket.socket, direction: _Direction, delay: float, starts: float, out: _Chunks
) -> None:
    with contextlib.suppress(OSError):
        _sleep_until(starts)
        while data := source.recv(_CHUNK):
            out.put((direction.passed(len(data)) + delay, data))
    out.put((time.monotonic() + delay, b""))


def _write(target: socket.socket, ready: _Chunks) -> None:
    with contextlib.suppress(OSError):
        while True:
            at, data = ready.get()
            _sleep_until(at)
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))


def main(port: int, megabits: float, round_trip_ms: float) -> None:
    up, down = (_Direction(megabits * 1e6 / 8) for _ in range(2))
    delay = round_trip_ms / 2000
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", port))
        starts = time.monotonic() + 2 * delay
        for source, target, direction in ((near, far, up), (far, near, down)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready = _Chunks(_BUFFER // _CHUNK)
            for task, words in (
                (_read, (source, direction, delay, starts, ready)),
                (_write, (target, ready)),
            ):
                threading.Thread(target=task, args=words, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
