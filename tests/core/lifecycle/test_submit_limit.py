"""The limit of a queue is learnt by a refusal, kept full, and followed when it changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allranks.core.lifecycle.submit_limit import (
    FIRST,
    LONGEST,
    SubmitLimit,
    after_accepted,
    after_refused,
    may_submit,
)

TICK = 0.5


class Queue:
    """A cluster that takes ``fits`` gangs, and the server's ticks."""

    def __init__(self, fits: int) -> None:
        self.fits, self.queued, self.now = fits, 0, 0.0
        self.limit, self.refusals, self.starts = SubmitLimit(), 0, 0

    def tick(self, waiting: int = 10_000) -> None:
        for _ in range(waiting):
            if not may_submit(self.limit, self.queued, self.now):
                break
            if self.queued < self.fits:
                self.limit = after_accepted(self.limit, self.queued, self.now)
                self.queued += 1
                self.starts += 1
            else:
                self.limit = after_refused(self.limit, self.queued, self.now)
                self.refusals += 1
        self.now += TICK


@given(st.integers(0, 50), st.lists(st.integers(0, 5), min_size=1, max_size=80))
def test_it_is_always_full_and_seldom_refuses(fits: int, ends: list[int]) -> None:
    queue = Queue(fits)
    for ended in ends:
        queue.tick()
        assert queue.queued == fits, "every slot is used at the tick after it was free"
        queue.queued -= min(ended, queue.queued)
    # The first refusal, and then one after 1, 2, 4, … seconds: never one for each job.
    assert queue.refusals <= 2 + len(ends) * TICK / FIRST


@given(st.integers(0, 40), st.integers(0, 400))
def test_a_limit_that_changes_is_followed(before: int, after: int) -> None:
    queue = Queue(before)
    while queue.now < 4 * LONGEST:
        queue.tick()
    assert queue.refusals <= 12
    queue.fits, changed = after, queue.now
    queue.queued = min(queue.queued, after)
    while queue.queued < after:
        queue.tick()
    # One pause, then it grows twofold with each second.
    assert queue.now - changed <= LONGEST + 12 * FIRST


def test_one_job_tries_and_not_each() -> None:
    queue = Queue(0)
    for _ in range(int(100 / TICK)):
        queue.tick(waiting=200)
    assert queue.refusals == 7  # at 0, 1, 3, 7, 15, 31, 63 s
