"""The operators of a torch trace that take the most time. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

_CPU, _GPU = ("cpu_op",), ("kernel", "gpu_memcpy", "gpu_memset")


def top(events: Iterable[Mapping[str, Any]], most: int = 10) -> list[dict[str, Any]]:
    """Name, device, calls, seconds of its own and share of the device's, of the largest ones.
    Raises TypeError or ValueError if they are malformed."""
    by_thread: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
    for event in events:
        kind = event.get("cat")
        if event.get("ph") == "X" and kind in (*_CPU, *_GPU):
            key = ("gpu" if kind in _GPU else "cpu", event.get("pid"), event.get("tid"))
            begin, length = float(event["ts"]), float(event["dur"])
            by_thread[key].append((begin, -length, str(event["name"])))
    own: Counter[tuple[str, str]] = Counter()
    calls: Counter[tuple[str, str]] = Counter()
    for (device, *_), several in by_thread.items():
        stack: list[tuple[float, tuple[str, str]]] = []
        for begin, negative, name in sorted(several):
            while stack and stack[-1][0] <= begin:
                stack.pop()
            if stack:  # inside another one, whose own time that is not
                own[stack[-1][1]] += negative  # type: ignore[assignment]
            own[device, name] -= negative  # type: ignore[assignment]
            calls[device, name] += 1
            stack.append((begin - negative, (device, name)))
    totals: Counter[str] = Counter()
    for (device, _), time in own.items():
        totals[device] += time
    return [
        {
            "name": name,
            "device": device,
            "calls": calls[device, name],
            "seconds": time / 1e6,
            "share": time / (totals[device] or 1),
        }
        for (device, name), time in own.most_common(most)
    ]
