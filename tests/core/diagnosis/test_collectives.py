"""What the ranks' recorders say, compared."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allranks.core.diagnosis import collectives
from allranks.core.diagnosis.collectives import Entry, Finding, Group, Kind, Recorded, compare

OPERATIONS = ("all_reduce", "broadcast", "all_gather")


def entry(number: int, operation: str = "all_reduce", group: str = "0", **more: Any) -> Entry:
    fields: dict[str, Any] = {"sizes": ((8,),), "types": ("Float",), "pending": False}
    fields |= {"since": 100.0 + number, "place": "train.py:14"}
    return Entry(group, number, operation, **(fields | more))


def world(count: int, *, stops: dict[int, int], last: int, seed: int = 0) -> dict[int, Recorded]:
    """Ranks that have called ``last`` collectives; those of ``stops`` only so many, so that all
    others wait in the next one."""
    group = Group("0", "default_pg", tuple(range(count)))
    block = min(stops.values()) + 1 if stops else last + 1
    ranks = {}
    for rank in range(count):
        calls = range(1, stops.get(rank, block) + 1)
        entries = [
            entry(n, OPERATIONS[(n + seed) % 3], pending=n == block and rank not in stops)
            for n in calls
            if n <= last
        ]
        ranks[rank] = Recorded(rank, (group,), tuple(entries[-16:]))
    return ranks


def said(finding: Finding | None) -> str:
    assert finding is not None
    return collectives.sentence(finding, lambda at: f"at {at:g}")


@given(st.integers(2, 9), st.integers(0, 40), st.integers(0, 2), st.data())
def test_who_has_not_called_is_named(count: int, stop: int, seed: int, data: st.DataObject):
    late = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1))
    ranks = world(count, stops=dict.fromkeys(late, stop), last=stop + 1, seed=seed)
    finding = compare(ranks)
    assert finding is not None
    assert (finding.kind, set(finding.ranks)) == (Kind.NOT_CALLED, late)
    assert set(finding.waiting) == set(range(count)) - late
    assert finding.entry is not None
    assert finding.entry.number == stop + 1


@given(st.integers(2, 9), st.integers(1, 40), st.integers(0, 2))
def test_ranks_that_wait_for_nothing_are_not_blamed(count: int, last: int, seed: int):
    finding = compare(world(count, stops={}, last=last, seed=seed))
    assert finding is not None
    assert finding.kind is Kind.OUTSIDE


@given(
    st.integers(3, 9),
    st.sampled_from([Kind.OPERATION, Kind.SHAPE, Kind.TYPE]),
    st.data(),
)
def test_who_calls_something_else_is_named(count: int, kind: Kind, data: st.DataObject):
    odd = data.draw(st.integers(0, count - 1))
    other = {
        Kind.OPERATION: entry(3, "barrier", pending=True, place="train.py:20"),
        Kind.SHAPE: entry(3, sizes=((9,),), pending=True),
        Kind.TYPE: entry(3, types=("Long",), pending=True),
    }[kind]
    group = (Group("0", "default_pg", tuple(range(count))),)
    ranks = {
        rank: Recorded(rank, group, (other if rank == odd else entry(3, pending=True),))
        for rank in range(count)
    }
    finding = compare(ranks)
    assert finding is not None
    assert (finding.kind, finding.ranks) == (kind, (odd,))


@given(st.permutations(range(4)), st.integers(0, 3))
def test_the_order_of_the_answers_does_not_count(order: list[int], late: int):
    ranks = world(4, stops={late: 2}, last=3)
    assert compare({rank: ranks[rank] for rank in order}) == compare(ranks)


def test_a_rank_that_has_ended_and_one_that_has_not_answered():
    ranks = world(4, stops={2: 5}, last=6)
    del ranks[2]
    assert said(compare(ranks)).startswith("rank 2 does not answer; ranks 0-1, 3 wait in it since")
    finding = compare(ranks, ended=[2])
    assert said(finding) == (
        "rank 2 ended without calling all_reduce #6 [8] of the default group, train.py:14; "
        "ranks 0-1, 3 wait in it since at 106"
    )


def test_two_groups_in_which_ranks_wait_for_one_another():
    a, b = Group("1", "tensor", (0, 1)), Group("2", "data", (0, 1))
    first = Recorded(0, (a, b), (entry(4, group="1", pending=True),))
    second = Recorded(1, (a, b), (entry(7, "broadcast", "2", pending=True, place="train.py:30"),))
    finding = compare({0: first, 1: second})
    assert finding is not None
    assert finding.kind is Kind.GROUPS
    assert said(finding) == (
        "rank 1 has not called all_reduce #4 [8] of group tensor, train.py:14, but broadcast #7 "
        "[8] of another group (train.py:30); rank 0 waits in it since at 104"
    )
    # Asked at 106, rank 0 may have gone on by 107, when rank 1 began to wait.
    finding = compare({0: first._replace(at=106.0), 1: second._replace(at=108.0)})
    assert finding is not None
    assert (finding.kind, finding.ranks) == (Kind.NOT_CALLED, (1,))


def test_who_waits_in_another_group_is_not_the_cause():
    """0 and 1 wait in a group for 2, 3 in another for 1."""
    near, far = Group("1", "near", (0, 1, 2)), Group("2", "far", (1, 3))
    ranks = {
        0: Recorded(0, (near,), (entry(2, group="1", pending=True),)),
        1: Recorded(1, (near, far), (entry(2, group="1", pending=True), entry(1, group="2"))),
        2: Recorded(2, (near,), (entry(1, group="1"),)),
        3: Recorded(3, (far,), (entry(1, group="2"), entry(2, group="2", pending=True, since=1.0))),
    }
    finding = compare(ranks)
    assert finding is not None
    assert (finding.kind, finding.ranks, finding.waiting) == (Kind.NOT_CALLED, (2,), (0, 1))


def test_all_have_called_and_nothing_moves():
    finding = compare(world(3, stops={}, last=4))
    assert finding is not None
    assert finding.kind is Kind.OUTSIDE
    stuck = {
        rank: each._replace(entries=(entry(5, pending=True),))
        for rank, each in world(3, stops={}, last=4).items()
    }
    assert said(compare(stuck)).endswith("and it has not ended since at 105")


@given(st.recursive(st.none() | st.integers() | st.text(), lambda c: st.lists(c, max_size=3)))
def test_what_a_rank_answers_may_be_anything(value: Any):
    from allranks.core.diagnosis.stacks import Process

    answer = {"rank": value, "groups": value, "entries": value}
    process = Process(0, 0, 1, "python", collectives=answer)
    assert isinstance(collectives.of_processes([process]), dict)
