"""What lies beneath a round, and may fail it: a disk that fills up or stands still, a network that
is cut. Real ones, of the test's own, where this machine lets us have them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SIZE = 1 << 30
_CLONE_NEWNET = 0x40000000
_NAMESPACE = "/proc/thread-self/ns/net"


class Lacking(Exception):
    """This machine does not let us have it; why."""


def _run(*argv: str | Path) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL, cwd="/")
    except OSError as error:
        raise Lacking(f"{argv[0]}: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise Lacking(f"{argv[0]}: {error.stderr.decode().strip()}") from None


class Disk:
    """A file system in an image, at ``place``. One misfortune at a time."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.lock = threading.Lock()

    def fill(self, seconds: float) -> None:
        """Leave no room on it for so long, whatever others remove meanwhile."""
        filler, end = self.place / "filler", time.monotonic() + seconds
        with self.lock, filler.open("wb", buffering=0) as file:
            try:
                with suppress(OSError):
                    room = os.statvfs(self.place)
                    os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
                file.seek(0, os.SEEK_END)
                while time.monotonic() < end:
                    with suppress(OSError):
                        while True:
                            file.write(b"x" * 4096)
                    time.sleep(0.01)
            finally:
                filler.unlink()

    def freeze(self, seconds: float) -> None:
        """Have whoever writes to it wait for so long. It thaws by itself: we may be among them."""
        script = 'fsfreeze -f "$1" && sleep "$2"; fsfreeze -u "$1"'
        argv = ["sh", "-c", script, "sh", self.place, str(seconds)]
        with self.lock:
            subprocess.run(
                argv, check=True, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True
            )


@contextmanager
def disk(place: Path) -> Iterator[Disk]:
    """One at ``place``. Raises Lacking."""
    image = place.with_suffix(".image")
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(_SIZE)
    _run("mkfs.ext4", "-q", "-m", "0", image)
    # Without `noatime` who reads would wait, too: for the time of reading to be written down.
    _run("mount", "-o", "loop,noatime", image, place)
    found = Disk(place)
    try:
        # Whether it can be frozen is found out here.
        _run("fsfreeze", "-f", place)
        _run("fsfreeze", "-u", place)
        yield found
    finally:
        with found.lock:  # not while it is frozen, or nobody could thaw it any more
            _run("umount", "--lazy", place)
        image.unlink()


class Network:
    """Where agents speak to the server, known by the words of their requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def cut(self, seconds: float, *words: str) -> None:
        """For so long let nothing through that has all of ``words`` in it: they are sent again and
        again, and arrive late or never."""
        rule = ["INPUT", "-p", "tcp"]
        for word in words:
            rule += ["-m", "string", "--algo", "bm", "--string", word]
        self._filter("-A", rule)
        try:
            time.sleep(seconds)
        finally:
            self._filter("-D", rule)

    def _filter(self, act: str, rule: list[str]) -> None:
        with self._lock:
            _run("iptables", "-w", act, *rule, "-j", "DROP")


@contextmanager
def network() -> Iterator[Network]:
    """One of the calling thread's own, and of all that it starts meanwhile. Raises Lacking."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(_NAMESPACE, os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET):
            raise Lacking(f"a network of its own: {os.strerror(ctypes.get_errno())}")
        try:
            _run("ip", "link", "set", "lo", "up")
            found = Network()
            found.cut(0.0, "whether it can be", "is found out here")
            yield found
        finally:
            assert libc.setns(before, _CLONE_NEWNET) == 0
    finally:
        os.close(before)


class Arena:
    """A home, and what lies beneath it: that fails for everybody who plays."""

    def __init__(self, home: Path, disk: Disk | None, network: Network | None) -> None:
        self.home, self.disk, self.network = home, disk, network
        self._lock = threading.Lock()
        self._playing: list[set[str]] = []
        self._under_way: list[str] = []

    @property
    def lacking(self) -> set[str]:
        found = {"disk": self.disk, "network": self.network}
        return {name for name, each in found.items() if each is None}

    @contextmanager
    def joined(self, happened: set[str]) -> Iterator[None]:
        """``happened`` hears meanwhile what befalls all."""
        with self._lock:
            happened.update(self._under_way)
            self._playing.append(happened)
        yield
        with self._lock:
            self._playing = [each for each in self._playing if each is not happened]

    @contextmanager
    def befalls_all(self, what: str) -> Iterator[None]:
        with self._lock:
            self._under_way.append(what)
            for each in self._playing:
                each.add(what)
        yield
        with self._lock:
            self._under_way.remove(what)
