"""Taking a running job its nodes away, as its cluster might: a rehearsal."""

from __future__ import annotations

import getpass
import os
from typing import Any

from allranks.sdk import finding
from allranks.sdk.addresses import job_path


def preempt(name: str, node: int | None = None) -> dict[str, Any]:
    """The job, of which all nodes or that one are to go. Raises AllranksError unless it runs."""
    try:
        by = f"{getpass.getuser()}@{os.uname().nodename}"
    except (KeyError, OSError):  # a user without a name
        by = f"{os.getuid()}@{os.uname().nodename}"
    query = "" if node is None else f"?node={node}"
    told: dict[str, Any] = finding.ask("POST", job_path(name, f"/preempt{query}"), {"by": by})
    return told
