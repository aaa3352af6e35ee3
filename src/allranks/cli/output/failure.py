"""Why a job failed, in words."""

from __future__ import annotations

from typing import Any

# The length limit of a line of evidence.
_WIDE = 160
_AGAIN = {True: " (running it again may help)", False: "", None: ""}


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
