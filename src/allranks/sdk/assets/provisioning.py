"""What programs and scripts for Azure ML read as ``provisioning_state``. Pure."""

from __future__ import annotations

_WORDS = {"Ready": "Succeeded", "Empty": "Succeeded", "Failed": "Failed", "UpdateFailed": "Failed"}


def provisioning_state(state: str) -> str:
    """Azure ML's word for the state of an endpoint or a deployment."""
    return _WORDS.get(state, "Updating")
