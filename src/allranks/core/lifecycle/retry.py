"""After what a job restarts, how often, how soon, and where: one table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from allranks.core.plan import Rules
from allranks.statuses import RetryOn

# After an attempt whose ranks ran for this many seconds the job counts as healthy: back-off and
# budgets for infrastructure failures are reset.
HEALTHY = 3600.0


class Budget(NamedTuple):
    """``restarts``: how many are allowed; None: as many as ``max_attempts`` leaves. ``stays``: how
    many of them use the same nodes (None: all); the others use new ones. The first wait is
    ``first`` seconds, the second ``then``, and each later one is doubled, up to ``most``, counted
    over all consecutive attempts that were not HEALTHY, whatever ended them."""

    restarts: int | None
    stays: int | None
    first: float
    then: float
    most: float


BUDGETS: Mapping[RetryOn, Budget] = {
    # A script may fail once by chance. One that keeps failing must not burn its nodes.
    RetryOn.USER: Budget(None, None, 0.0, 1.0, 60.0),
    RetryOn.HANG: Budget(None, None, 0.0, 1.0, 60.0),
    # Stores and networks recover by themselves. A second failure may be caused by the node.
    RetryOn.SETUP: Budget(3, 1, 5.0, 10.0, 300.0),
    # A cluster that loses every gang has to stop somewhere.
    RetryOn.NODE_LOST: Budget(10, 0, 0.0, 1.0, 60.0),
    # Cheap nodes are preempted often.
    RetryOn.PREEMPTED: Budget(100, 0, 0.0, 1.0, 60.0),
    RetryOn.PORT: Budget(3, None, 0.0, 0.0, 0.0),
}


class Spent(NamedTuple):
    """Restarts so far by key; ``row``: consecutive attempts that were not HEALTHY."""

    user: int = 0
    hang: int = 0
    setup: int = 0
    node_lost: int = 0
    preempted: int = 0
    port: int = 0
    row: int = 0

    def on(self, key: RetryOn) -> int:
        count: int = getattr(self, key)
        return count

    def rested(self) -> Spent:
        """The counts after a HEALTHY attempt: only restarts out of ``max_attempts`` still count."""
        bounded = (key for key in BUDGETS if BUDGETS[key].restarts is not None)
        return self._replace(row=0, **{str(key): 0 for key in bounded})

    def after(self, key: RetryOn) -> Spent:
        """With one more restart. A taken port does not count as an unhealthy attempt."""
        counted = {str(key): self.on(key) + 1}
        return self._replace(**counted, row=self.row + (key is not RetryOn.PORT))


class Restart(NamedTuple):
    """How a job starts again: on the same nodes, or on new ones."""

    same_nodes: bool


def restart(rules: Rules, spent: Spent, key: RetryOn) -> Restart | None:
    """The next restart for ``key``; None if the job has none left."""
    if left(rules, spent, key) == 0:
        return None
    most = BUDGETS[key].stays
    return Restart(same_nodes=most is None or spent.on(key) < most)


def left(rules: Rules, spent: Spent, key: RetryOn) -> int:
    """How many restarts for ``key`` the job has left."""
    if key is not RetryOn.PORT and (rules.max_attempts == 1 or key not in rules.on):
        return 0
    own = BUDGETS[key].restarts
    budget = rules.budgets.get(key, rules.max_attempts - 1 if own is None else own)
    return max(0, budget - spent.on(key))


def wait(spent: Spent, key: RetryOn) -> float:
    """Seconds before the next attempt after ``key``."""
    budget, row = BUDGETS[key], spent.row
    return budget.first if row == 0 else min(budget.most, budget.then * 2.0 ** min(row - 1, 60))
