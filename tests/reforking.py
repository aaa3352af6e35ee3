"""A program that cannot be followed: it forks, leaves its session and exits, again and again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# SIGTERM is ignored. Each chain ends by itself after a minute.
PROGRAM = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
until = time.monotonic() + 60
for _ in range({chains}):
    if os.fork() == 0:
        while time.monotonic() < until and os.fork() == 0:
            os.setsid()
            time.sleep(0.02)
        os._exit(0)
"""


@contextlib.contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """Processes that each want a whole CPU."""
    argv = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(argv) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()
