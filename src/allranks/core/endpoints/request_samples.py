"""How deployments answered over time: what the router counted, sampled for an hour."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentSeries

# Seconds between two samples, how many are kept, and how many tell the present rate.
PACE, KEPT, _RECENT = 5.0, 720, 12


class Sample(NamedTuple):
    """``requests``, ``errors`` and ``refused`` are totals since the router started; ``ready``:
    replicas. Latencies are in milliseconds."""

    at: float
    requests: int
    errors: int
    refused: int
    waiting: int
    ready: int
    p50: float | None
    p95: float | None
    p99: float | None


class Samples:
    """Of deployments by `ENDPOINT/NAME`. One thread takes them, others may read."""

    def __init__(self) -> None:
        self._last = 0.0
        self._samples: Mapping[str, tuple[Sample, ...]] = {}

    def take(self, counts: Mapping[str, Any], now: float) -> None:
        """Sample what the router says, if it is time."""
        if now - self._last >= PACE:
            self._last = now
            self._samples = {
                key: (*self._samples.get(key, ())[1 - KEPT :], _sample(state, now))
                for key, state in counts.items()
            }

    def rate(self, key: str) -> float:
        """Requests a second, in the last minute."""
        recent = self._samples.get(key, ())[-1 - _RECENT :]
        if len(recent) < 2:
            return 0.0
        requests = sum(_increase(one.requests, two.requests) for one, two in pairwise(recent))
        return requests / (recent[-1].at - recent[0].at)

    def series(self, key: str, name: str) -> DeploymentSeries:
        pairs = [*pairwise(self._samples.get(key, ()))]

        def rates(of: str) -> list[float]:
            return [
                _increase(getattr(one, of), getattr(two, of)) / (two.at - one.at)
                for one, two in pairs
            ]

        return {
            "name": name,
            "at": [two.at for _, two in pairs],
            "requests": rates("requests"),
            "errors": rates("errors"),
            "refused": rates("refused"),
            "waiting": [two.waiting for _, two in pairs],
            "ready": [two.ready for _, two in pairs],
            "p50": [two.p50 for _, two in pairs],
            "p95": [two.p95 for _, two in pairs],
            "p99": [two.p99 for _, two in pairs],
        }


def _increase(before: int, after: int) -> int:
    """What a total grew by; a new router counts from zero."""
    return after - before if after >= before else after


def _sample(counts: Mapping[str, Any], now: float) -> Sample:
    ready = sum(replica["ready"] for replica in counts["replicas"].values())
    own = {name: counts[name] for name in Sample._fields if name not in ("at", "ready")}
    return Sample(at=now, ready=ready, **own)
