"""When a job hangs, and when it is only slow: decided from what its nodes and stacks say."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.attempt_end import Failure
from allranks.core.diagnosis.hang_rules import Rank, Suspicion, hung, suspicion
from allranks.core.diagnosis.stacks import Frame, Process
from allranks.core.lifecycle.decide import Clock, Job, decide, new, outcome
from allranks.core.lifecycle.fold import fold
from allranks.core.packing import pack, unpack
from allranks.core.plan import Rules
from allranks.events import Event, Kind
from allranks.statuses import JobStatus, NodeState, Reason

T, CLOCK = 60.0, 1000.0
STUCK, WORKS = Rank(61, 61, 61), Rank(61, 0.5, 61)
PRINTS = Rank(3, 0.5, 61)
C10D = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
BARRIER = (Frame(C10D, 5000, "barrier"), Frame("train.py", 50, "validate"))
LOADS = (Frame("data.py", 88, "load_batch", "queue.get()"), Frame("train.py", 9, "<module>"))
ITEM = (Frame("train.py", 41, "train", "total += loss.item()"),)


def process(rank: int, frames: tuple[Frame, ...], busy: float = 0.0, silent: float = 0.0):
    return Process(rank, 0, rank, "python", "S", frames, busy=busy, silent=silent)


def judged(told: dict[int, Rank], now: list[Process], before: list[Process] | None = None):
    return hung(told, now if before is None else before, now, T, CLOCK)


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({0: STUCK, 1: STUCK}, Suspicion.NOW),
        ({0: STUCK}, Suspicion.NONE),  # of the other nothing is heard: it moves
        ({0: STUCK, 1: PRINTS}, Suspicion.NONE),
        ({0: STUCK, 1: WORKS}, Suspicion.NOW),  # it may poll: its stack tells
        ({0: Rank(40, 40, 40), 1: Rank(40, 0, 40)}, Suspicion.BEFORE),
        ({0: Rank(40, 40, 40), 1: Rank(40, 40, 40)}, Suspicion.NONE),  # idle: nothing to compare
        ({0: STUCK, 1: Rank(90, 40, 90)}, Suspicion.NONE),  # it was at work until now
        ({0: STUCK, 1: Rank(90, 90, 5)}, Suspicion.NONE),  # it downloads
        ({0: STUCK, 1: Rank(90, 90, 90, 0.5)}, Suspicion.NOW),  # a GPU: its stack tells
    ],
)
def test_what_is_suspected(told: dict[int, Rank], what: Suspicion):
    assert suspicion(told, {0, 1}, T) is what
    assert suspicion(told, set(), T) is Suspicion.NONE


def test_it_hangs_since_the_last_progress_of_any():
    found = judged({0: Rank(90, 90, 70), 1: Rank(65, 80, 100)}, [process(0, LOADS)])
    assert found is not None
    assert found.at == CLOCK - 65


def test_everybody_idle_hangs_and_the_odd_one_is_named():
    told = dict.fromkeys(range(8), STUCK)
    now = [process(rank, LOADS if rank == 5 else BARRIER) for rank in range(8)]
    found = judged(told, now)
    assert found is not None
    assert (found.reason, found.rank, found.at) == (Reason.HANG, 5, CLOCK - 61)
    assert found.message == (
        "rank 5 on node 0 has made no progress for 60 s: it is in load_batch (data.py:88) while "
        "7 others are waiting in barrier, called by validate (train.py:50)"
    )


def test_without_an_odd_one_it_is_told_where_all_are():
    found = judged(dict.fromkeys(range(3), STUCK), [process(rank, BARRIER) for rank in range(3)])
    assert found is not None
    assert "ranks 0-2 are waiting in barrier" in found.message
    alone = judged({0: STUCK}, [process(0, LOADS)])
    assert alone is not None
    assert (alone.rank, alone.message) == (
        0,
        "no rank has made progress for 60 s: rank 0 is in load_batch (data.py:88)",
    )


def test_one_that_computes_while_the_others_wait_is_well():
    """Validation on rank 0, a compiler below it, a library that computes in C."""
    others = [process(rank, BARRIER) for rank in (1, 2)]
    told = {0: WORKS, 1: STUCK, 2: STUCK}
    for frames in (LOADS, ITEM, ()):
        assert judged(told, [process(0, frames, busy=1.0, silent=60), *others]) is None
    compiles = Process(0, 0, 9, "cc1plus", "R", parent=0, busy=1.0, why="no Python")
    assert judged(told, [process(0, BARRIER, silent=60), compiles, *others]) is None


def test_polling_for_peers_is_no_work():
    told = {0: WORKS, 1: WORKS}
    now = [process(rank, BARRIER, busy=1.0, silent=31) for rank in (0, 1)]
    assert judged(told, now) is not None
    ran = [now[0], now[1]._replace(silent=2.0)]
    assert judged(told, ran) is None
    elsewhere = [now[0], process(1, LOADS)]
    assert judged(told, now, elsewhere) is None
    assert judged(told, now, []) is None


def test_waiting_for_a_gpu_counts_where_there_is_one_at_work():
    now = [process(rank, ITEM, busy=1.0, silent=31) for rank in (0, 1)]
    assert judged({0: WORKS, 1: WORKS}, now) is None
    assert judged(dict.fromkeys((0, 1), Rank(61, 0, 61, 0.5)), now) is not None
    sleeping = [each._replace(busy=0.0) for each in now]
    assert judged(dict.fromkeys((0, 1), Rank(61, 61, 61, 0.5)), sleeping) is not None
    assert judged(dict.fromkeys((0, 1), Rank(61, 61, 61, 0.5)), [process(0, LOADS)]) is None


SECONDS = st.sampled_from([0.0, 10.0, 31.0, 59.0, 61.0, 500.0])
RANKS = st.builds(Rank, SECONDS, SECONDS, SECONDS, st.sampled_from([0.0, 61.0, inf]))
FRAMES = st.sampled_from([BARRIER, LOADS, ITEM, ()])


@st.composite
def jobs(draw: st.DrawFn) -> tuple[dict[int, Rank], list[Process]]:
    told = draw(st.dictionaries(st.integers(0, 3), RANKS, min_size=1))
    processes = [
        process(rank, draw(FRAMES), draw(st.sampled_from([0.0, 1.0])), draw(SECONDS))
        for rank in told
        for _ in range(draw(st.integers(0, 2)))
    ]
    return told, processes


@given(jobs(), st.integers(0, 3))
@pytest.mark.medium
def test_nobody_is_alarmed_while_any_rank_prints_or_moves_data(
    job: tuple[dict[int, Rank], list[Process]], one: int
):
    told, _ = job
    for moves in (Rank(0, 500, 500), Rank(500, 500, 0)):
        assert suspicion({**told, one: moves}, {*told, one}, T) is Suspicion.NONE


@given(jobs(), st.integers(0, 3), st.sampled_from([LOADS, ()]))
def test_nobody_is_alarmed_while_one_computes_that_is_not_seen_to_wait(
    job: tuple[dict[int, Rank], list[Process]], one: int, frames: tuple[Frame, ...]
):
    told, now = job
    now = [*now, process(one, frames, busy=1.0, silent=500)]
    assert judged({**told, one: WORKS}, now) is None


# ---------------------------------------------------------------- what follows

HUNG = Failure(Reason.HANG, 0, 5, message="rank 5 is stuck")


def running() -> Job:
    nodes = tuple(each._replace(state=NodeState.RUNNING) for each in new(2).nodes)
    return new(2)._replace(status=JobStatus.RUNNING, nodes=nodes, started_at=0.0)


def closed(rules: Rules) -> Job:
    step = decide(running(), rules, Clock(100.0, hung=HUNG))
    assert step is not None
    assert step.event is Kind.CLOSING
    job = fold(running(), Event(step.event, 100.0, data=step.data))
    for node in (0, 1):
        for seq, kind in enumerate((Kind.ENDED, Kind.DRAINED), 1):
            data = {"reason": Reason.PEER_FAILED} if kind is Kind.ENDED else {}
            job = fold(job, Event(kind, 101.0, node=node, seq=seq, data=data))
    return job


def test_a_hang_ends_the_job_with_what_was_found():
    job = closed(Rules(2))
    assert job.then is not None
    assert (job.then.purpose, outcome(job)) == ("finish", HUNG._replace(at=100.0))
    assert unpack(Job, pack(job)) == job


@pytest.mark.parametrize(
    ("rules", "purpose"),
    [
        (Rules(2, max_attempts=2), "regroup"),
        (Rules(2, max_attempts=2, on=("hang",)), "regroup"),
        (Rules(2, max_attempts=2, on=("user", "node_lost")), "finish"),
    ],
)
def test_the_retry_rule_counts_it_as_the_users(rules: Rules, purpose: str):
    job = closed(rules)
    assert job.then is not None
    assert job.then.purpose == purpose
    if purpose == "regroup":
        again = fold(job, Event(Kind.REGROUPED, 102.0))
        assert (again.attempt, again.spent.hang, again.hung) == (2, 1, None)


def test_a_job_that_is_done_does_not_hang():
    nodes = tuple(each._replace(reason=Reason.DONE) for each in running().nodes)
    step = decide(running()._replace(nodes=nodes), Rules(2), Clock(100.0, hung=HUNG))
    assert step is not None
    assert step.data["reason"] is Reason.DONE
