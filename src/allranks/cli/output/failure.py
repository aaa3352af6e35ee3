"""Why a job failed, in words."""

from __future__ import annotations

from typing import Any

# Characters of a line of evidence that are shown.
_WIDE = 160
_AGAIN = {True: " (trying again may well help)", False: "", None: ""}


def why(error: dict[str, Any]) -> list[str]:
    """Why it failed, in a line or two, as far as the error's own message does not say it."""
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
