"""The processes of gangs that a test started on this machine."""

import contextlib
import os
import signal
from pathlib import Path

from allranks.engines.local.end_gang import marked
from allranks.engines.local.engine import LocalEngine


def kill(engine: LocalEngine, key: str) -> None:
    """At once: the engine takes each for a keeper, which it gives seconds to end by itself."""
    for pid in marked(engine.mark(key), Path("/nowhere")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
