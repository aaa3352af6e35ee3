"""Whether this node sees the server's home."""

from __future__ import annotations

import os
import time

from allranks.errors import NotFound
from allranks.plan.home_mark import HomeMark, is_there

# Disks of the network may show a file as it was for that many seconds.
_PATIENCE, _PACE = 2.0, 0.2


def require_home(mark: HomeMark, node: int) -> None:
    """Raise NotFound if another folder lies at the path of the server's home: what the job writes
    there would be lost."""
    until = time.monotonic() + _PATIENCE
    while True:
        why = "the folder there is not the server's"
        try:
            with open(mark["path"], encoding="utf-8", errors="replace") as file:
                if is_there(mark, file.read()):
                    return
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        if time.monotonic() > until:
            break
        time.sleep(_PACE)
    host, home = os.uname().nodename, os.path.dirname(mark["path"])
    raise NotFound(
        f"node {node} on {host} does not see the server's ALLRANKS_HOME ({why})",
        where=home,
        hint=f"mount the disk with {home} on {host}, or keep the job off that host",
    )
