"""Whether this node sees the server's home."""

from __future__ import annotations

import os

from allranks.errors import NotFound


def require_home(mark: str, node: int) -> None:
    """Raise NotFound if the server's ``mark`` is not there: another folder lies at the path of its
    home, and what the job writes there would be lost."""
    try:
        os.stat(mark)
    except OSError as error:
        host = os.uname().nodename
        home = os.path.dirname(os.path.dirname(mark))
        why = (error.strerror or str(error)).lower()
        raise NotFound(
            f"node {node} on {host} does not see the server's ALLRANKS_HOME ({why})",
            where=home,
            hint=f"mount the disk with {home} on {host}, or keep the job off that host",
        ) from None
