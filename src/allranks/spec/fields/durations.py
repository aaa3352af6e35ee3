"""How long something lasts: `90s`, `30m`, `1.5h`, `7d`, `2w`."""

from __future__ import annotations

import re

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
EXAMPLES = "90s, 30m, 1.5h, 7d or 2w"
_PATTERN = r"([0-9]{1,12}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}) ?([smhdwSMHDW]?)"


def seconds_of(text: str, unit: str = "s") -> float:
    """The seconds; of a bare number in this ``unit``. Raises ValueError."""
    match = re.fullmatch(_PATTERN, text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration, such as {EXAMPLES}")
    return float(match[1]) * UNITS[match[2].lower() or unit]
