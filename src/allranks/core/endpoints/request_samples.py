"""How deployments answered over time: what the router counted, sampled for an hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentSeries

# Seconds between two samples, those for which they are kept, and how many tell the present rate.
PACE, KEPT, _RECENT = 5.0, 3600.0, 12
# Of samples that are farther apart nobody knows what was between them, in seconds.
_APART = 4 * PACE


class Sample(NamedTuple):
    """``requests``, ``errors`` and ``refused`` are totals since the router started; ``ready``:
    replicas. Latencies are in milliseconds, of the last minute."""

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
                key: (*self._recent(key, now), _sample(state, now)) for key, state in counts.items()
            }

    def _recent(self, key: str, now: float) -> list[Sample]:
        return [sample for sample in self._samples.get(key, ()) if now - KEPT < sample.at < now]

    @property
    def rows(self) -> Mapping[str, tuple[Sample, ...]]:
        """All samples, for ``restore`` of the next server."""
        return self._samples

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Continue with the ``rows`` of the server before. Raises TypeError, ValueError."""
        self._samples = {
            key: tuple(Sample(*map(_number, row[:6]), *map(_optional, row[6:])) for row in samples)
            for key, samples in rows.items()
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

        def of_pairs(value: Callable[[Sample, Sample], Any]) -> list[Any]:
            return [value(*pair) if pair[1].at - pair[0].at < _APART else None for pair in pairs]

        def rates(of: str) -> list[float | None]:
            return of_pairs(
                lambda one, two: _increase(getattr(one, of), getattr(two, of)) / (two.at - one.at)
            )

        def latencies(of: str) -> list[float | None]:
            return of_pairs(
                lambda one, two: getattr(two, of) if one.requests != two.requests else None
            )

        return {
            "name": name,
            "at": [two.at for _, two in pairs],
            "requests": rates("requests"),
            "errors": rates("errors"),
            "refused": rates("refused"),
            "waiting": of_pairs(lambda _, two: two.waiting),
            "ready": of_pairs(lambda _, two: two.ready),
            "p50": latencies("p50"),
            "p95": latencies("p95"),
            "p99": latencies("p99"),
        }


def _increase(before: int, after: int) -> int:
    """What a total grew by; a new router counts from zero."""
    return after - before if after >= before else after


def _number(value: Any) -> Any:
    """A value of a sample that was kept. Raises TypeError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError(value)


def _optional(value: Any) -> Any:
    return None if value is None else _number(value)


def _sample(counts: Mapping[str, Any], now: float) -> Sample:
    ready = sum(replica["ready"] for replica in counts["replicas"].values())
    own = {name: counts[name] for name in Sample._fields if name not in ("at", "ready")}
    return Sample(at=now, ready=ready, **own)
