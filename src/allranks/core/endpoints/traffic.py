"""How the requests of an endpoint are divided among its deployments. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def with_share(traffic: Mapping[str, int], name: str, percent: int) -> dict[str, int]:
    """The traffic when a deployment gets ``percent`` of it: the others divide the rest as before.
    Without others it gets all."""
    others = {other: share for other, share in traffic.items() if share and other != name}
    total, rest = sum(others.values()), 100 - percent
    if not total:
        return {name: 100}
    shares = {other: rest * share // total for other, share in others.items()}
    lost = rest - sum(shares.values())  # by rounding down
    for other in sorted(shares, key=lambda key: -(rest * others[key] % total))[:lost]:
        shares[other] += 1
    return {name: percent, **{other: share for other, share in shares.items() if share}}
