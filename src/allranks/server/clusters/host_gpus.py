"""How many GPUs the hosts of a cluster have, asked in the background and kept for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from allranks.engines.base import Host
from allranks.errors import AllranksError

# Seconds that a submit waits for a cluster's answer, that an answer counts before the cluster is
# asked anew, and that a cluster which did not answer is left alone.
_PATIENCE, _FRESH, _PAUSE = 1.0, 60.0, 10.0
# The most answers that are kept: a job may have options of its own.
_KEPT = 64


class HostGpus:
    """The GPUs of each host of a cluster. Clusters are asked in the background, so that one that is
    slow delays a submit by a second once, and then no more. Any thread may ask."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}

    def of(self, key: str, ask: Callable[[], Sequence[Host]]) -> tuple[int, ...] | None:
        """What ``ask`` says, or said lately; None where there is no answer yet."""
        with self._lock:
            answer = self._answers.pop(key, None) or _Answer()
            self._answers[key] = answer
            if len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]
            answer.refresh(ask)
        if answer.counts is None:
            answer.done.wait(max(0.0, answer.began + self._patience - time.monotonic()))
        return answer.counts


class _Answer:
    """What one cluster said last."""

    def __init__(self) -> None:
        self.counts: tuple[int, ...] | None = None
        self.began = -_FRESH
        self.done = threading.Event()
        self.done.set()

    def refresh(self, ask: Callable[[], Sequence[Host]]) -> None:
        age = time.monotonic() - self.began
        if self.done.is_set() and age >= (_PAUSE if self.counts is None else _FRESH):
            self.began = time.monotonic()
            self.done.clear()
            threading.Thread(target=self._ask, args=(ask,), daemon=True).start()

    def _ask(self, ask: Callable[[], Sequence[Host]]) -> None:
        try:
            self.counts = tuple(host.gpus for host in ask())
        except (AllranksError, OSError, ValueError, LookupError):
            pass  # it cannot be asked now: what it said before counts
        finally:
            self.done.set()
