"""How long something lasts: `90s`, `30m`, `1.5h`, `7d`, `2w`."""

from __future__ import annotations

import math

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
EXAMPLES = "90s, 30m, 1.5h, 7d or 2w"


def seconds_of(text: str, unit: str = "s") -> float:
    """The seconds; of a bare number in this ``unit``. Raises ValueError."""
    number, letter = text.strip(), unit
    if number[-1:].lower() in UNITS:
        number, letter = number[:-1].rstrip(), number[-1].lower()
    try:
        seconds = float(number) * UNITS[letter]
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0 and text.isascii()):
        raise ValueError(f"{text!r} is not a duration, such as {EXAMPLES}")
    return seconds
