"""Amounts as Kubernetes writes them. Pure."""

from __future__ import annotations

import re

_UNITS = {
    "": 1.0,
    "m": 1e-3,
    **{unit: 1000.0**n for n, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**n for n, unit in enumerate("KMGTPE", 1)},
}


def quantity(text: str) -> float:
    """Parse an amount of the cluster, such as 500m, 16Gi or 1e3."""
    match = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]{0,2})", str(text))
    if match is None or match[2] not in _UNITS:
        return 0.0
    return float(match[1]) * _UNITS[match[2]]
