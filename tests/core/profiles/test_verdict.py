"""One verdict over the profiles of all ranks, from samples made up and from those of real jobs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.diagnosis.collectives import Entry, Group, Recorded
from allranks.core.diagnosis.stacks import Frame
from allranks.core.profiles import files, operators
from allranks.core.profiles.samples import Native, Phase, Samples, Thread, load, phase
from allranks.core.profiles.verdict import Kind, verdict

TORCH = "/env/lib/python3.11/site-packages/torch/"
TRAIN = Frame("train.py", 9, "main")
STACKS: dict[Phase, tuple[Frame, ...]] = {
    Phase.INPUT: (TRAIN, Frame(f"{TORCH}utils/data/dataloader.py", 7, "__next__")),
    Phase.FORWARD: (TRAIN, Frame(f"{TORCH}nn/modules/module.py", 7, "_call_impl")),
    Phase.BACKWARD: (TRAIN, Frame(f"{TORCH}autograd/__init__.py", 7, "backward")),
    Phase.OPTIMIZER: (TRAIN, Frame(f"{TORCH}optim/sgd.py", 7, "step")),
    Phase.CHECKPOINT: (TRAIN, Frame(f"{TORCH}serialization.py", 7, "save")),
    Phase.COLLECTIVE: (TRAIN, Frame(f"{TORCH}distributed/distributed_c10d.py", 7, "all_reduce")),
    Phase.OTHER: (TRAIN,),
    Phase.IMPORT: (TRAIN, Frame("<frozen importlib._bootstrap>", 7, "_load")),
}
PHASES = list(STACKS)


def rank(
    number: int,
    shares: Mapping[Phase, float],
    late: float = 0.0,
    others: float = 0.0,
    lock: float = 0.0,
    count: int = 200,
    collectives: int = 20,
) -> Samples:
    """A rank with 200 samples of 10 ms, whose collectives come ``late`` seconds."""
    stacks = [kind for kind, share in shares.items() for _ in range(round(share * count))]
    at = tuple((index + 1) / 100 for index in range(len(stacks)))
    cpu = tuple(0.01 for _ in at)
    none = tuple(0.0 for _ in at)
    threads = [Thread("MainThread", True, at, cpu, none, tuple(map(PHASES.index, stacks)))]
    if others:
        busy = tuple(others / 100 for _ in at)
        threads.append(
            Thread("worker", False, at, busy, none, (PHASES.index(Phase.OTHER),) * len(at))
        )
    calls = tuple(
        Entry("0", n, "all_reduce", ((8,),), ("Float",), False, n / 10 + late, "train.py:9")
        for n in range(collectives)
    )
    recorded = Recorded(number, (Group("0", "default_pg", (0, 1, 2)),), calls)
    return Samples(number, 0, 0.0, 2.0, tuple(STACKS.values()), tuple(threads), 0.0, lock, recorded)


@pytest.mark.parametrize("kind", STACKS)
def test_phases_of_stacks(kind: Phase):
    assert phase(STACKS[kind]) is kind


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        ({Phase.INPUT: 0.5, Phase.FORWARD: 0.2, Phase.BACKWARD: 0.3}, Kind.INPUT),
        ({Phase.CHECKPOINT: 0.3, Phase.FORWARD: 0.3, Phase.BACKWARD: 0.4}, Kind.CHECKPOINT),
        ({Phase.OPTIMIZER: 0.6, Phase.FORWARD: 0.2, Phase.BACKWARD: 0.2}, Kind.OPTIMIZER),
        ({Phase.BACKWARD: 0.8, Phase.FORWARD: 0.2}, Kind.BACKWARD),
        ({Phase.FORWARD: 0.7, Phase.BACKWARD: 0.3}, Kind.FORWARD),
        ({Phase.COLLECTIVE: 0.7, Phase.BACKWARD: 0.3}, Kind.NETWORK),
        ({Phase.OTHER: 0.8, Phase.FORWARD: 0.2}, Kind.PYTHON),
        ({Phase.IMPORT: 0.8, Phase.OTHER: 0.2}, Kind.UNKNOWN),
        ({Phase.FORWARD: 0.4, Phase.BACKWARD: 0.5, Phase.INPUT: 0.1}, Kind.UNKNOWN),
    ],
)
def test_what_all_ranks_spend_their_time_on(shares: Mapping[Phase, float], kind: Kind):
    assert verdict([rank(number, shares) for number in range(3)]).kind is kind


@given(st.integers(0, 2), st.sampled_from([Phase.INPUT, Phase.FORWARD, Phase.CHECKPOINT]))
def test_the_rank_that_all_wait_for_is_named(slow: int, kind: Phase):
    waits = {Phase.COLLECTIVE: 0.6, Phase.FORWARD: 0.2, Phase.BACKWARD: 0.2}
    own = {kind: 0.7, Phase.BACKWARD: 0.3}
    ranks = [
        rank(number, own if number == slow else waits, 0.06 if number == slow else 0.0)
        for number in range(3)
    ]
    made = verdict(ranks)
    assert (made.kind, made.rank, made.phase) == (Kind.SLOW_RANK, slow, kind)
    assert made.ranks[slow].last == 20
    # Who is missing may be the slow one.
    assert verdict(ranks, missing=[3]).kind is not Kind.SLOW_RANK


def test_few_collectives_to_which_one_rank_comes_last_by_far_do_not_blame_all_in_turn():
    own, waits = {Phase.INPUT: 1.0}, {Phase.COLLECTIVE: 1.0}
    ranks = [
        rank(number, own if number == 1 else waits, 0.3 * (number == 1), collectives=5)
        for number in range(3)
    ]
    made = verdict(ranks)
    assert made.kind is Kind.SLOW_RANK
    assert "rank 1 comes last to 5 of 5 collectives" in made.message


def test_own_time_off_the_processor_is_waiting():
    def sleeper(other_threads: float) -> Samples:
        made = rank(0, {Phase.OTHER: 1.0})
        stack = (TRAIN, Frame("train.py", 33, "wait_for_lock", "time.sleep(0.1)"))
        (thread,) = made.threads
        idle = thread._replace(cpu=(0.0005,) * len(thread.cpu), stacks=(0,) * len(thread.stacks))
        native = (Native("jax", other_threads, 0.0),)
        return made._replace(stacks=(stack,), threads=(idle,), native=native)

    made = verdict([sleeper(0.0)])
    assert made.kind is Kind.WAITING
    assert made.message == (
        "the script waits 95% of the time, mostly in `time.sleep(0.1)` (train.py:33)"
    )
    assert "a sleep, a lock" in made.hint
    # It waits for threads that compute.
    assert verdict([sleeper(1.8)]).kind is Kind.PYTHON


def test_threads_that_hold_the_lock():
    shares = {Phase.FORWARD: 0.4, Phase.BACKWARD: 0.5, Phase.INPUT: 0.1}
    held = [rank(number, shares, others=1.5, lock=0.004) for number in range(3)]
    made = verdict(held)
    assert made.kind is Kind.GIL
    assert "worker in main (train.py:9)" in made.message
    free = [rank(number, shares, others=1.5) for number in range(3)]
    assert verdict(free).kind is Kind.UNKNOWN


# Planted slow jobs of `bench profile` on two cores that fourteen processes wanted: of each rank and
# phase the samples, and the seconds, on a processor, and waiting for one; and when it called each
# collective.
CROWDED = json.loads(Path(__file__).with_name("crowded.json").read_text())


def crowded(number: int, size: int, row: Mapping[str, Any]) -> Samples:
    at: list[float] = []
    columns: tuple[list[float], list[float], list[int]] = ([], [], [])
    for name, (count, seconds, cpu, waited) in row["phases"].items():
        for _ in range(count):
            at.append((at[-1] if at else 0.0) + seconds / count)
            for column, value in zip(columns, (cpu / count, waited / count), strict=False):
                column.append(value)
            columns[2].append(PHASES.index(Phase(name)))
    cpu, waited, stacks = map(tuple, columns)
    threads = [Thread("MainThread", True, tuple(at), cpu, waited, stacks)]
    if row["others"]:
        used = (row["others"],)
        threads.append(Thread("worker", False, (5.0,), used, (0.0,), (PHASES.index(Phase.OTHER),)))
    calls = tuple(
        Entry("0", n, "all_reduce", ((8,),), ("Float",), False, since, "train.py:9")
        for n, since in enumerate(row["since"])
    )
    recorded = Recorded(number, (Group("0", "default_pg", tuple(range(size))),), calls)
    native = tuple(Native(*thread) for thread in row["native"])
    return Samples(
        number, 0, 0.0, 5.0, tuple(STACKS.values()), tuple(threads), sum(waited), row["lock"],
        recorded, native,
    )  # fmt: skip


@pytest.mark.parametrize("name", CROWDED)
def test_what_was_planted_is_told_on_a_crowded_machine(name: str):
    rows: Sequence[Mapping[str, Any]] = CROWDED[name]
    ranks = [crowded(number, len(rows), row) for number, row in enumerate(rows)]
    made = verdict(ranks)
    # The checkpoint is one rank's, which the others wait for.
    is_of_one = made.kind is Kind.SLOW_RANK and made.phase is Phase.CHECKPOINT
    kind = Phase.CHECKPOINT if is_of_one else made.kind
    assert kind == name.rpartition("-")[0].replace("-", "_")


def test_who_waits_for_a_processor_does_not_wait_for_the_network():
    ranks = [crowded(number, 2, row) for number, row in enumerate(CROWDED["backward-2"])]
    for one in verdict(ranks).ranks:
        assert one.shares[Phase.COLLECTIVE] < 0.3
        assert one.starved > 0.5


def test_a_gpu_s_thread_of_autograd_is_not_the_network():
    rows = [dict(row, native=[["pt_autograd_0", 4.9, 0.0]]) for row in CROWDED["network-15"]]
    ranks = [crowded(number, 2, row) for number, row in enumerate(rows)]
    assert verdict(ranks).kind is not Kind.NETWORK


@given(
    st.lists(
        st.dictionaries(st.sampled_from(PHASES), st.floats(0, 1), max_size=4),
        min_size=0,
        max_size=4,
    )
)
def test_there_is_always_a_verdict_and_files(several: list[dict[Phase, float]]):
    ranks = [rank(number, shares) for number, shares in enumerate(several)]
    made = verdict(ranks)
    assert made.message
    assert files.flame_graph(ranks).startswith("<svg")
    events = files.perfetto(ranks)["traceEvents"]
    assert all(event.get("dur", 0) >= 0 for event in events)
    for one in files.speedscope(ranks, "job")["profiles"]:
        assert len(one["samples"]) == len(one["weights"])


def test_too_few_samples_say_nothing():
    made = verdict([rank(number, {Phase.INPUT: 1.0}, count=20) for number in range(3)])
    assert made.kind is Kind.UNKNOWN


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        load(0, 0, {
            "frames": [["f.py", 1, "f"]], "stacks": [[0]],
            "threads": [
                {"name": "t", "main": True, "at": [1], "cpu": [], "waited": [], "stacks": [0]}
            ],
        })  # fmt: skip


def test_the_own_time_of_operators():
    def event(name: str, begin: float, length: float) -> dict[str, object]:
        return {"ph": "X", "cat": "cpu_op", "name": name, "ts": begin, "dur": length, "tid": 1}

    top = operators.top([event("outer", 0, 100), event("inner", 10, 60), event("inner", 80, 10)])
    assert [(one["name"], one["calls"], one["seconds"]) for one in top] == [
        ("inner", 2, 70e-6), ("outer", 1, 30e-6)
    ]  # fmt: skip
