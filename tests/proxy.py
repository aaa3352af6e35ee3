"""A connection to the server that counts, and that breaks or stalls where a test says."""

import random
import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes everything on. ``sent`` is what the server has sent so far; once that is more than
    ``at`` bytes, ``reached`` is set and nothing comes until ``go_on`` is (or ``cut``: ever)."""

    def __init__(self, url: str, *, at: int | None = None, cut: bool = False) -> None:
        self._port = int(url.rsplit(":", 1)[1])
        self._at, self._cut = at, cut
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._ended = set[frozenset[socket.socket]]()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.sent = 0
        self.reached, self.go_on = threading.Event(), threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        with self._lock:
            for each in (self._socket, *self._open):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port))
                except OSError:  # the server is away
                    near.close()
                    continue
                with self._lock:
                    self._open += [near, far]
                for start, end, counted in ((near, far, False), (far, near, True)):
                    threading.Thread(
                        target=self._pass_on, args=(start, end, counted), daemon=True
                    ).start()

    def _pass_on(self, start: socket.socket, end: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := start.recv(65536):
                end.sendall(data)
                if counted and self._is_here(len(data)) and self._cut:
                    break
        for each in (start, end):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            # The second of the two closes them: who still sends is not left waiting for ever.
            if (pair := frozenset((start, end))) in self._ended:
                start.close()
                end.close()
            self._ended.add(pair)

    def _is_here(self, size: int) -> bool:
        """Count; whether this was where it was to stop."""
        with self._lock:
            self.sent += size
            here = self._at is not None and self.sent > self._at
            if here:
                self._at = None
        if here:
            self.reached.set()
            if not self._cut:
                self.go_on.wait(60)
        return here


class Cutting(Proxy):
    """Cuts a connection after each random amount of data that passes, in either direction."""

    def __init__(self, url: str, chance: random.Random, most: int) -> None:
        self._chance, self._most = chance, most
        super().__init__(url, at=chance.randrange(1, most), cut=True)

    def _pass_on(self, start: socket.socket, end: socket.socket, counted: bool) -> None:
        super()._pass_on(start, end, True)

    def _is_here(self, size: int) -> bool:
        here = super()._is_here(size)
        if here:
            self._at = self.sent + self._chance.randrange(1, self._most)
        return here
