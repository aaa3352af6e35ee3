"""Whether imported modules allow a fork."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable

# Functions of OpenBLAS that return the size of its pool, which it ends before a fork.
_POOLS = tuple(
    f"{prefix}openblas_get_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)


class Refused(Exception):
    """Ranks have to start without this server; the text is the reason."""


def printed_by(work: Callable[[Iterable[str]], None], names: Iterable[str], path: str) -> bytes:
    """Run it, and return what it printed. ``path`` is for a temporary file."""
    saved = os.dup(1), os.dup(2)
    # Not memfd_create(2): Pythons built for an old libc lack it.
    with open(path, "w+b") as file:
        os.unlink(path)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            work(names)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, fd in enumerate(saved, 1):
                os.dup2(fd, number)
                os.close(fd)
        file.seek(0)
        return file.read()


def expect_forkable() -> None:
    """Raise Refused if a fork would lose threads or the state of a GPU. OpenBLAS ends and restarts
    its own threads around a fork."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        raise Refused(f"importing them starts the thread {threading.enumerate()[-1].name}")
    mapped = _mapped_files()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        threads -= sum(_pool(path) - 1 for path in mapped if "openblas" in os.path.basename(path))
        if threads > 1:
            raise Refused("importing them starts threads")
    # NVIDIA's driver opens nvidia-uvm as CUDA is initialized; NVML, which allows a fork, does not.
    devices = re.compile(r"/dev/(nvidia\d+|nvidia-uvm|kfd|dri/renderD\d+)")
    if any(devices.match(path) for path in mapped | _open_files()):
        raise Refused("importing them initializes a GPU")
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        raise Refused("importing them starts a process")


def _mapped_files() -> set[str]:
    with open("/proc/self/maps", errors="surrogateescape") as file:
        return {line[line.index("/") :].rstrip("\n") for line in file if "/" in line}


def _open_files() -> set[str]:
    files = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself is closed by now
            files.add(os.readlink(f"/proc/self/fd/{name}"))
    return files


def _pool(path: str) -> int:
    library = ctypes.CDLL(path)
    for name in _POOLS:
        function = getattr(library, name, None)
        if function is not None:
            return int(function())
    return 1
