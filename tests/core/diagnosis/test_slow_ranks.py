"""Who holds the others: planted, by chance, now and then, and by clocks."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.core.diagnosis import slow_ranks
from allranks.core.diagnosis.slow_ranks import Arrival, Group, Slow, Tally

PERIOD, LEAST = 20.0, 60.0
# The seconds that a rank computes before a collective, by rank and step.
Work = Callable[[int, int], float]


def train(
    world: int, work: Work, seconds: float, buckets: int = 1, step: float = 0.2
) -> list[Tally]:
    """The tallies of ranks that train together, each with ``buckets`` collectives a step."""
    group = Group("0", tuple(range(world)))
    calls: dict[int, dict[tuple[str, int], float]] = {rank: {} for rank in group.ranks}
    tallies, begin, due = list[Tally](), 0.0, PERIOD
    after: dict[Group, int] = {}
    number = at_step = 0
    while begin < seconds:
        at_step += 1
        ready = [begin + step + work(rank, at_step) for rank in group.ranks]
        for bucket in range(buckets):
            for rank in group.ranks:
                calls[rank]["0", number] = ready[rank] + 0.001 * bucket
            number += 1
        begin = max(ready) + 0.001 * buckets
        if begin >= due:
            new, after = slow_ranks.arrivals([group], calls, after)
            tallies.append(slow_ranks.tally(new, due - PERIOD, due, several_hosts=False))
            due += PERIOD
            for several in calls.values():
                for call in sorted(several)[:-64]:
                    del several[call]
    return tallies


def found(tallies: list[Tally]) -> list[Slow]:
    """Whom the rule names at any time."""
    pasts = (tallies[:end] for end in range(1, len(tallies) + 1))
    return [slow for past in pasts if (slow := slow_ranks.slow(past, LEAST)) is not None]


@given(
    world=st.integers(2, 8),
    more=st.floats(0.3, 3.0),
    buckets=st.integers(1, 5),
    step=st.floats(0.1, 3.0),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_a_rank_that_always_needs_longer_is_named(
    world: int, more: float, buckets: int, step: float, seed: int
) -> None:
    chance = random.Random(seed)
    bad = chance.randrange(world)
    noise = 0.05 * step

    def work(rank: int, _: int) -> float:
        return chance.uniform(0, noise) + more * step * (rank == bad)

    named = found(train(world, work, max(90.0, 80 * step * (1 + more)), buckets, step))
    assert named
    assert {slow.member for slow in named} == {bad}
    assert abs(named[0].share - more / (1 + more)) < 0.15


@given(world=st.integers(2, 8), spread=st.floats(0.0, 3.0), seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_ranks_that_differ_by_chance_are_not_named(world: int, spread: float, seed: int) -> None:
    chance = random.Random(seed)
    assert not found(train(world, lambda rank, step: chance.expovariate(1) * spread, seconds=400.0))


@pytest.mark.medium
@given(every=st.floats(8.0, 120.0), lasts=st.floats(0.5, 20.0), world=st.integers(2, 12))
@settings(max_examples=15, deadline=None)
def test_a_rank_that_saves_now_and_then_is_not_named(
    every: float, lasts: float, world: int
) -> None:
    often = max(1, round(every / 0.2))
    saves: Work = lambda rank, step: lasts * (rank == 0 and step % often == 0)  # noqa: E731
    assert not found(train(world, saves, seconds=400.0))


def test_it_is_named_after_a_minute_and_over_when_it_is_as_fast_as_others() -> None:
    tallies = train(3, lambda rank, step: 0.3 * (rank == 2 and 110 < step < 400), seconds=300.0)
    named = found(tallies)
    assert [slow.member for slow in named[:1]] == [2]
    assert named[0].since >= PERIOD
    over = [
        end for end in range(1, len(tallies) + 1) if slow_ranks.is_over(tallies[:end], 2, LEAST)
    ]
    assert over[-1] == len(tallies)


@pytest.mark.parametrize("step", [0.1, 1.0, 2.0, 8.0])
def test_a_clear_case_is_named_as_soon_as_it_cannot_be_chance(step: float) -> None:
    """Others wait 71, 73 and 100 % of the time, it 0 %: of a job of a minute, too."""
    of_step = {0: 0.29, 1: 0.27, 2: 1.0, 3: 0.0}
    tallies = train(4, lambda rank, _: step * of_step[rank], 200.0, step=0.0)
    pasts = (tallies[:end] for end in range(1, len(tallies) + 1))
    slow = next(one for past in pasts if (one := slow_ranks.slow(past, LEAST)) is not None)
    first = next(
        one.at for one in tallies if slow_ranks.slow(tallies[: tallies.index(one) + 1], 60)
    )
    assert slow.member == 2
    assert first <= max(PERIOD, 13 * step + PERIOD)


def test_who_waits_for_another_group_is_not_named() -> None:
    """Rank 1 comes late to the group of 0 and 1 since it waits for rank 2 in another."""
    left, right = Group("a", (0, 1)), Group("b", (1, 2))
    calls: dict[int, dict[tuple[str, int], float]] = {0: {}, 1: {}, 2: {}}
    begin = 0.0
    for number in range(60):
        calls[1]["b", number] = begin + 0.1
        calls[2]["b", number] = begin + 1.1
        calls[1]["a", number] = begin + 1.2
        calls[0]["a", number] = begin + 0.1
        begin += 1.2
    new, after = slow_ranks.arrivals([left, right], calls, {})
    tally = slow_ranks.tally(new, 0.0, begin, several_hosts=False)
    assert slow_ranks.slow([tally], LEAST).member == 2  # type: ignore[union-attr]
    assert after == {left: 59, right: 59}
    assert slow_ranks.arrivals([left, right], calls, after)[0] == []


def test_clocks_of_hosts_that_differ_a_little_name_nobody() -> None:
    tallies = train(2, lambda rank, step: 0.015 * (rank == 1), seconds=200.0, step=0.05)
    assert found(tallies)
    group = Group("0", (0, 1))
    calls = {rank: {("0", n): 0.05 * n + 0.015 * rank for n in range(200)} for rank in (0, 1)}
    new, _ = slow_ranks.arrivals([group], calls, {})
    assert not slow_ranks.tally(new, 0.0, 1.0, several_hosts=True).last


def test_a_node_is_as_late_as_its_last_rank() -> None:
    arrival = Arrival({0: 1.0, 1: 1.5, 2: 3.0, 3: 2.9}, {0: 0.1, 1: 0.6, 2: 2.1, 3: 2.0})
    nodes = {0: 0, 1: 0, 2: 1, 3: 1}
    assert slow_ranks.of_nodes(arrival, nodes) == Arrival({0: 1.5, 1: 3.0}, {0: 0.6, 1: 2.1})
