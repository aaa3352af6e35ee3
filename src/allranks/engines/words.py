"""What engines say of nodes, in words."""

from __future__ import annotations


def count(number: float, thing: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number:g} {thing}{'' if number == 1 else 's'}"


def there_are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'} there"
