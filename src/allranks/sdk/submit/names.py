"""Names for jobs that have none."""

from __future__ import annotations

import os

# fmt: off
_ADJECTIVES = (
    "amber", "brave", "bright", "calm", "clever", "crisp", "eager", "gentle", "golden", "happy",
    "jolly", "keen", "kind", "lively", "lucky", "mellow", "merry", "nimble", "noble", "polite",
    "proud", "quick", "quiet", "sharp", "sunny", "witty",
)
_NOUNS = (
    "acorn", "anchor", "apple", "arrow", "badger", "beacon", "bridge", "candle", "cedar", "clover",
    "comet", "coral", "crane", "falcon", "feather", "harbor", "island", "lantern", "maple",
    "meadow", "otter", "pebble", "pepper", "river", "rocket", "sparrow", "tulip", "willow",
)
# fmt: on
_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"


def generate_name() -> str:
    """A name like ``calm_otter_7x2k9q``: easy to say, and unique."""
    dice = os.urandom(10)
    tail = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in dice[2:])
    return f"{_ADJECTIVES[dice[0] % len(_ADJECTIVES)]}_{_NOUNS[dice[1] % len(_NOUNS)]}_{tail}"
