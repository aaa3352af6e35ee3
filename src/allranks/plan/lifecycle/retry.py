"""What may start a job again, how often, how soon, and where: one table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from allranks.plan.plan import Rules
from allranks.statuses import RetryOn

# After an attempt whose ranks ran for so long the job is taken to have been well: waits begin anew,
# and so do the budgets of what befell it.
HEALTHY = 3600.0


class Budget(NamedTuple):
    """What one of them may cost. ``restarts``: how many, None: as many as ``max_attempts`` leaves.
    ``stays``: so many of them on the nodes it has (None: all), the others on new ones. The first
    wait is ``first`` seconds, the next ``then``, and each after that twice the one before, ``most``
    at last: counted over all attempts in a row that were not HEALTHY, whatever ended them."""

    restarts: int | None
    stays: int | None
    first: float
    then: float
    most: float


BUDGETS: Mapping[RetryOn, Budget] = {
    # A script may fail for once; one that fails at once, and again, is not to burn its nodes.
    RetryOn.USER: Budget(None, None, 0.0, 1.0, 60.0),
    RetryOn.HANG: Budget(None, None, 0.0, 1.0, 60.0),
    # Stores and networks come back by themselves. What failed twice on a node may be the node's.
    RetryOn.SETUP: Budget(3, 1, 5.0, 10.0, 300.0),
    # A cluster that loses every gang has to stop somewhere.
    RetryOn.NODE_LOST: Budget(10, 0, 0.0, 1.0, 60.0),
    # That is what cheap nodes are like.
    RetryOn.PREEMPTED: Budget(100, 0, 0.0, 1.0, 60.0),
    RetryOn.PORT: Budget(3, None, 0.0, 0.0, 0.0),
}


class Spent(NamedTuple):
    """Restarts so far by key; ``row``: attempts in a row that were not HEALTHY."""

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
        """After an attempt that was HEALTHY: what is of ``max_attempts`` stays spent."""
        bounded = (key for key in BUDGETS if BUDGETS[key].restarts is not None)
        return self._replace(row=0, **{str(key): 0 for key in bounded})

    def after(self, key: RetryOn) -> Spent:
        """With one more restart. A port that was taken says nothing of how the job fares."""
        counted = {str(key): self.on(key) + 1}
        return self._replace(**counted, row=self.row + (key is not RetryOn.PORT))


def left(rules: Rules, spent: Spent, key: RetryOn) -> int:
    """How many restarts the job has left for it."""
    if key is not RetryOn.PORT and (rules.max_attempts == 1 or key not in rules.on):
        return 0
    own = BUDGETS[key].restarts
    budget = rules.budgets.get(key, rules.max_attempts - 1 if own is None else own)
    return max(0, budget - spent.on(key))


def stays(spent: Spent, key: RetryOn) -> bool:
    """Whether the next restart for it is on the nodes it has."""
    most = BUDGETS[key].stays
    return most is None or spent.on(key) < most


def wait(spent: Spent, key: RetryOn) -> float:
    """Seconds until the next attempt for it."""
    budget, row = BUDGETS[key], spent.row
    return budget.first if row == 0 else min(budget.most, budget.then * 2.0 ** min(row - 1, 60))
