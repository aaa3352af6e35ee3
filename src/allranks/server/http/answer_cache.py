"""The latest answers that take long to compute and are asked for again: by another tab, or another
part of the same page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from allranks.errors import Passing

# Answers that are kept, and the bytes above which one is not.
_MOST, _LARGE = 8, 1 << 20
# Answers computed at a time, since each takes a core.
_AT_ONCE = 2
# Requests that compute or wait: each holds one of the 40 threads that answer all others, too.
_MOST_REQUESTS = 16


class AnswerCache:
    """Thread-safe. Requests for the same answer at once share it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._running: dict[Hashable, Future[bytes]] = {}
        self._requests = 0
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    def get(self, key: Hashable, compute: Callable[[], bytes]) -> bytes:
        """The answer of ``key``, which names everything that it depends on. Raises Passing if too
        many wait, and what ``compute`` raises."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
            if self._requests >= _MOST_REQUESTS:
                raise Passing("the server computes many charts", hint="ask again in a few seconds")
            self._requests += 1
            is_first = key not in self._running
            answer = self._running.setdefault(key, Future())
        try:
            if is_first:
                self._compute(key, compute, answer)
            return answer.result()
        finally:
            with self._lock:
                self._requests -= 1

    def _compute(self, key: Hashable, compute: Callable[[], bytes], answer: Future[bytes]) -> None:
        try:
            with self._turns:
                data = compute()
        except BaseException as error:
            with self._lock:
                del self._running[key]
            answer.set_exception(error)
            return
        with self._lock:
            del self._running[key]
            if len(data) <= _LARGE:
                self._answers[key] = data
            while len(self._answers) > _MOST:
                self._answers.popitem(last=False)
        answer.set_result(data)
