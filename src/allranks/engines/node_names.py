"""What engines say of nodes, in words."""

from __future__ import annotations


def available(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'} there"
