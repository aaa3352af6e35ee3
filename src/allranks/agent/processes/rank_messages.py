"""What processes of a job tell the agent, as JSON: any of them may write anything."""

from __future__ import annotations

import json
import math
from typing import Any


def load(data: bytes) -> dict[str, Any]:
    """The message. Raises ValueError if it is none, or has a number that a record cannot hold."""
    try:
        message = json.loads(data, parse_float=_finite, parse_constant=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("it is no message")
    return message


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) >= 2**63:
        raise ValueError(f"{text[:20]} is too large")
    return value
