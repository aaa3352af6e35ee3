"""Contenders in alternation: what slows the machine for a while slows all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import procs

SEED = 7

Samples = dict[str, list[float]]
Orders = list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """``once`` is timed; ``before`` puts things in place for it and is not. If ``once`` returns a
    float, that is the sample instead of the time it took."""

    name: str
    once: Callable[[], object]
    before: Callable[[], object] = lambda: None


def alternate(found: Sequence[Contender], rounds: int) -> tuple[Samples, Orders]:
    """Run each contender once a round, in an order drawn anew for each round. One round before them
    is not counted: it reads from the disk, compiles and sets up what is set up only once."""
    dice = random.Random(SEED)
    samples: Samples = {each.name: [] for each in found}
    orders = []
    for number in range(rounds + 1):
        order = dice.sample(found, len(found))
        for each in order:
            each.before()
            told = list[object]()
            seconds = procs.timed(lambda once=each.once, told=told: told.append(once()))  # type: ignore[misc]
            if number:
                (value,) = told
                samples[each.name].append(value if isinstance(value, float) else seconds)
        if number:
            orders.append([each.name for each in order])
    return samples, orders
