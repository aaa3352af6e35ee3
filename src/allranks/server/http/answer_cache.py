"""The latest answers that take long to compute and are asked for again: by another tab, or another
part of the same page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

# Answers that are kept: a few hundred kilobytes each.
_MOST = 8


class AnswerCache:
    """Thread-safe. One answer is computed at a time, since each takes a core."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], bytes]) -> bytes:
        """The answer of ``key``, which names everything that it depends on."""
        with self._lock:
            answer = self._answers.get(key)
            if answer is None:
                answer = self._answers[key] = compute()
            self._answers.move_to_end(key)
            while len(self._answers) > _MOST:
                self._answers.popitem(last=False)
        return answer
