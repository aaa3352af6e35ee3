"""References to versions of assets in addresses of the server's API."""

from __future__ import annotations


def reference(name: str, version: str | None, label: str) -> str:
    """A version, by number or label."""
    return f"{name}:{version}" if version else f"{name}@{label}"
