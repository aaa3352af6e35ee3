"""How a job failed: the exit code of commands that wait for it, and the reason in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The length limit of a line of evidence.
_WIDE = 160
_AGAIN = {True: " (running it again may help)", False: "", None: ""}


def exit_code(job: Mapping[str, Any]) -> int:
    """0 for a completed job, else its own code; 1 if no rank gave one."""
    return 0 if job["status"] == "Completed" else job["exit_code"] or 1


def why(error: dict[str, Any]) -> list[str]:
    """Why it failed, in one or two lines, beyond the error's message."""
    found = error.get("evidence")
    said = found is None or found["line"] in error["message"]
    if error.get("cause") in (None, "UNKNOWN") or (error["cause"] == error["reason"] and said):
        return []
    told = [f"cause: {error['explanation']}{_AGAIN[error['retryable']]}"]
    if found and found["rank"] is not None and not said:
        where = f"rank {found['rank']} on node {found['node']}"
        if found["number"]:
            where += f", line {found['number']} of its log"
        told.append(f"  {where}: {found['line'][:_WIDE]}")
    return told
