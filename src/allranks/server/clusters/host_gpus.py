"""The GPU counts of a cluster's hosts, queried in the background and cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from allranks.engines.base import Host
from allranks.errors import AllranksError

# Seconds: how long a submission waits for an answer, how long an answer is valid, and how long to
# wait after a failed query.
_PATIENCE, _FRESH, _PAUSE = 1.0, 60.0, 10.0
# The most cached answers; jobs may have options of their own.
_KEPT = 64


class HostGpus:
    """Caches the GPUs of each host of clusters. Queries run in the background, so that a slow
    cluster delays a submission by a second, and only once. Thread-safe."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}

    def of(self, key: str, ask: Callable[[], Sequence[Host]]) -> tuple[int, ...] | None:
        """The GPUs of each host that ``ask`` lists, maybe cached; None without an answer yet."""
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
    """The last answer of one cluster."""

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
            pass  # the previous answer stays valid
        finally:
            self.done.set()
