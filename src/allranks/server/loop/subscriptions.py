"""Who is called when something changes, without those that change it knowing who that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum


class Change(StrEnum):
    PARENT = "parent"  # a sweep or a pipeline, by its name, or one of its children
    SCHEDULE = "schedule"
    ENDPOINT = "endpoint"
    ROUTE = "route"  # as `ENDPOINT`, and the router has to know before the caller goes on
    STOP = "stop"  # the server stops for good, before its jobs are ended


class Subscriptions:
    """Subscribe before anything is published."""

    def __init__(self) -> None:
        self._called: dict[Change, list[Callable[[str], object]]] = defaultdict(list)

    def subscribe(self, change: Change, call: Callable[[str], object]) -> None:
        self._called[change].append(call)

    def publish(self, change: Change, name: str = "") -> bool:
        """Call all who have subscribed; whether none returned False."""
        answers = [call(name) for call in self._called.get(change, ())]
        return False not in answers
