"""How many replicas a deployment has for its load. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Scale(NamedTuple):
    """Between ``least`` and ``most`` replicas, each of which shall have ``load`` requests at once;
    ``delay``: seconds that fewer must do before there are fewer; ``interval``: between two
    decisions."""

    least: int
    most: int
    load: float
    delay: float = 60.0
    interval: float = 1.0


class Need(NamedTuple):
    """The replicas that were needed at a time."""

    at: float
    replicas: int


def needed(scale: Scale, load: float) -> int:
    """The replicas for ``load`` requests at once, a mean. The last one goes only without any."""
    replicas = math.ceil(round(load / scale.load, 6))
    return min(scale.most, max(scale.least, replicas, 1 if load > 0 else 0))


def follow(needs: Sequence[Need], need: Need, delay: float) -> tuple[Need, ...]:
    """What of the needs still counts after one more. The first one is the largest: as many replicas
    there shall be, so that they come at once, and go when none of them was needed for a while."""
    kept = (item for item in needs if item.replicas > need.replicas)
    return (*(item for item in kept if need.at - item.at < delay), need)
