"""What the ranks' recorders say, compared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.diagnosis import collectives
from allranks.core.diagnosis.collectives import Entry, Finding, Group, Kind, Recorded, compare
from allranks.core.diagnosis.stacks import Frame, Process
from tests.collective_variants import ENDINGS, VARIANTS, Variant

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


def _padded(words: list[str]) -> list[str]:
    return words + ["", "8", "float", "all"][len(words) :]


def recorded(variant: Variant) -> tuple[dict[int, Recorded], set[int]]:
    """What the ranks' recorders have, and the ranks that have ended."""
    count, ended, ranks = len(variant.calls), set[int](), {}
    names = ("all", "tensor", "data", "pair")
    members = {name: tuple(range(2 if name == "pair" else count)) for name in names}
    groups = [Group(name, "" if name == "all" else name, members[name]) for name in names]
    for rank in range(count):
        operation, size, kind, name = _padded(variant.first(rank))
        entries = [entry(n, group="all") for n in range(1, 4)]
        if operation in ENDINGS:
            ended.add(rank)
            continue
        if operation not in ("nothing", "recv"):
            number = 4 if name == "all" else 1
            fields = {"sizes": ((int(size),),), "types": (kind.title(),), "since": 104.0 + rank}
            fields["pending"] = operation != "object"
            entries.append(entry(number, operation, name, **fields))
        mine = tuple(group for group in groups if rank in group.ranks)
        ranks[rank] = Recorded(rank, mine, tuple(entries), at=200.0 + rank)
    return ranks, ended


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_each_way_to_disagree_is_told_or_not_known(variant: Variant):
    ranks, ended = recorded(variant)
    finding = compare(ranks, ended)
    assert finding is not None
    assert (finding.kind, finding.ranks) in variant.right
    assert variant.false_claims(said(finding)) == []
    # Without the answer of one rank, nothing is said of what it called.
    for silent in ranks:
        if len(rest := {rank: one for rank, one in ranks.items() if rank != silent}):
            for gone in (ended, ended | {silent}):
                partly = compare(rest, gone)
                assert partly is not None
                claims = variant.false_claims(said(partly))
                assert [claim for claim in claims if "ended" not in claim] == []
                if partly.kind in collectives.MISMATCHES or partly.kind is Kind.NOT_CALLED:
                    assert silent not in partly.ranks


def test_a_finding_as_data():
    finding = compare(world(4, stops={2: 5}, last=6))
    assert finding is not None
    data = collectives.facts(finding)
    assert data == {
        "op": "all_reduce",
        "sequence": 6,
        "group": "the default group",
        "missing_ranks": [2],
        "waiting_ranks": [0, 1, 3],
        "where": "train.py:14",
    }
    pair = {rank: recorded(VARIANTS[0])[0][rank] for rank in (0, 1)}
    tied = collectives.facts(compare(pair))  # type: ignore[arg-type]
    assert tied is not None
    assert (tied["missing_ranks"], tied["waiting_ranks"]) == ([], [0, 1])


def test_a_rank_is_named_where_a_sentence_speaks_of_two():
    finding = compare(world(2, stops={1: 5}, last=6))
    assert finding is not None
    frames = (Frame("train.py", 9, "load"),)
    now = Process(1, 0, 7, "python", frames=frames, collectives={})
    text = collectives.sentence(finding, lambda at: f"at {at:g}", [now])
    assert text.endswith("rank 0 waits in it since at 106, and rank 1 is in load (train.py:9)")


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
        "rank 2 has ended; ranks 0-1, 3 wait since at 106 in all_reduce #6 [8] of the default "
        "group, train.py:14"
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
        "[8] of group data, train.py:30; rank 0 waits in it since at 104"
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
    answer = {"rank": value, "groups": value, "entries": value}
    process = Process(0, 0, 1, "python", collectives=answer)
    assert isinstance(collectives.of_processes([process]), dict)


@pytest.mark.parametrize("since", [10**400, 1e300, float("nan"), -1])
def test_a_time_that_nobody_can_write_is_malformed(since: float):
    call = {"group": "0", "number": 1, "operation": "all_reduce", "sizes": [], "types": []}
    call |= {"pending": True, "since": since, "place": ""}
    answer = {"rank": 0, "groups": [["0", "", [0, 1]]], "entries": [call], "at": 5.0}
    process = Process(0, 0, 1, "python", collectives=answer)
    assert collectives.of_processes([process]) == {}
    call["since"] = 4.0
    assert collectives.of_processes([process]).keys() == {0}
