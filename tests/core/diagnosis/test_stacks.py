"""Stacks as processes write them: read, grouped, the odd one found, put into words."""

import json

import pytest

from allranks.core.diagnosis import stacks
from allranks.core.diagnosis.stacks import Frame, Process, doing, group, numbers, odd, read, waits
from allranks.core.packing import pack
from allranks.core.profiles import samples

LIB = "/env/lib/python3.11/site-packages"
C10D = f"{LIB}/torch/distributed/distributed_c10d.py"
REDUCE = (
    Frame(C10D, 3252, "all_reduce", "work.wait()"),
    Frame(f"{LIB}/torch/distributed/c10d_logger.py", 83, "wrapper"),
    Frame("/work/train.py", 41, "train"),
    Frame("/work/train.py", 60, "<module>"),
)
LOADS = (Frame("/work/data.py", 88, "load_batch", "time.sleep(9)"), *REDUCE[2:])
WROTE = """\
Stack (most recent call first):
  File "/work/late.py", line 1 in late
Stack (most recent call first):
  File "/w\\xf6rk/tr ain.py", line 41 in tr\\u0101in
  File "<frozen runpy>", line 88 in _run_code
answered
Thread "writer" (most recent call first):
  File "/env/lib/python3.11/threading.py", line 327 in wait
Thread "" (most recent call first):
whole
"""


def process(rank: int, frames: tuple[Frame, ...], **more: object) -> Process:
    return Process(rank, rank // 4, 100 + rank, "python train.py", "S", frames)._replace(**more)


def test_what_a_process_wrote_is_read_and_a_late_answer_is_not_taken_for_it():
    first, threads = read(WROTE)
    assert first == (
        Frame("/wörk/tr ain.py", 41, "trāin"),
        Frame("<frozen runpy>", 88, "_run_code"),
    )
    assert [(each.name, len(each.frames)) for each in threads] == [("writer", 1), ("", 0)]
    assert read("") == ((), ())


def test_most_wait_and_one_is_elsewhere():
    told = [process(rank, LOADS if rank == 5 else REDUCE) for rank in range(8)]
    large, small = group(told)
    assert (large.ranks, small.ranks) == ([0, 1, 2, 3, 4, 6, 7], [5])
    found = odd(told)
    assert found is not None
    assert (found[0].rank, stacks.at(found[0])) == (5, "load_batch (data.py:88)")
    assert doing(found[1].frames) == "waiting in all_reduce, called by train (train.py:41)"
    assert doing(found[0].frames) == "in load_batch (data.py:88)"
    assert numbers(large.ranks) == "0-4,6-7"


def test_where_in_a_loop_that_waits_a_rank_is_tells_nobody_apart():
    looped = [(Frame(C10D, line, "all_reduce"), *REDUCE[1:]) for line in (3240, 3252, 3253)]
    assert len(group([process(r, frames) for r, frames in enumerate(looped)])) == 1
    elsewhere = (*REDUCE[:2], Frame("/work/train.py", 44, "train"), REDUCE[3])
    assert len(group([process(0, REDUCE), process(1, elsewhere)])) == 2


def test_one_that_waits_for_two_that_are_stuck_is_not_the_odd_one():
    told = [process(0, REDUCE), process(1, LOADS), process(2, LOADS)]
    found = odd(told)
    assert found is not None
    assert found[0].rank == 1
    assert odd([process(0, LOADS), process(1, LOADS)]) is None
    assert odd([process(0, LOADS), process(1, REDUCE)]) is None


def test_copies_of_the_code_and_of_libraries_are_one_place():
    home = "/home/a/.allranks/nodes/job.1"
    told = [
        (
            Frame(f"/env{node}/lib/python3.11/site-packages/x.py", 1, "wait"),
            stacks.short(Frame(f"{home}/{node}/attempt-{node + 1}/work/sub/train.py", 5, "train")),
        )
        for node in range(2)
    ]
    assert told[0][1].file == "sub/train.py"
    assert len(group([process(rank, frames) for rank, frames in enumerate(told)])) == 1


def test_a_skipped_collective_leaves_one_in_another():
    barrier = (Frame(C10D, 5000, "barrier", "work.wait()"), Frame("/work/train.py", 50, "train"))
    found = odd([process(rank, barrier if rank == 1 else REDUCE) for rank in range(3)])
    assert found is not None
    assert found[0].rank == 1
    assert "barrier" in doing(found[0].frames)


def test_what_a_rank_starts_stands_apart_from_the_rank():
    loader = (Frame("/env/lib/python3.11/multiprocessing/queues.py", 103, "get"),)
    told = [process(rank, REDUCE) for rank in range(2)]
    told += [process(rank, loader, pid=200 + rank, parent=100 + rank) for rank in range(2)]
    own, workers = group(told)
    assert own.processes[0].parent is None
    assert [each.pid for each in workers.processes] == [200, 201]
    assert odd(told) is None


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (Frame("/work/a.py", 1, "f", "comm.Barrier()"), "Barrier"),
        (Frame("/work/a.py", 1, "f", "x = comm.allreduce(y, op=MPI.SUM)"), "allreduce"),
        (Frame("/work/a.py", 1, "f", "time.sleep(5)  # Barrier"), ""),
        (Frame(f"{LIB}/torch/nn/functional.py", 1, "linear", ""), ""),
        (Frame(f"{LIB}/horovod/torch/mpi_ops.py", 9, "synchronize", ""), "synchronize"),
        (Frame(f"{LIB}/torch/distributed/elastic/agent/server/api.py", 9, "_invoke_run"), ""),
    ],
)
def test_what_waits_for_other_ranks(frame: Frame, what: str):
    assert waits([frame]) == what


def test_a_process_without_a_stack_is_told_with_its_reason():
    told = [process(0, (), why="no Python; it waits"), process(1, REDUCE)]
    assert {each.processes[0].why for each in group(told)} == {"", "no Python; it waits"}
    assert stacks.at(told[0]) == "no Python; it waits"


def test_hundreds_of_ranks_are_told_in_a_few_characters():
    assert numbers(range(512)) == "0-511"
    assert numbers(range(0, 512, 2)) == "0,2,4,6,8,10,12,14,…"


def test_packed_and_loaded_is_the_same():
    told = process(3, LOADS, threads=(stacks.Thread("writer", REDUCE),), parent=7, busy=0.5)
    assert stacks.load(json.loads(json.dumps(pack(told)))) == told


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": "0"},
        {"pid": None},
        {"parent": 1.5},
        {"name": 3},
        {"why": ["x"]},
        {"silent": "long"},
        {"busy": float("nan")},
        {"busy": 10**400},
        {"frames": 3},
        {"frames": [{"file": "x", "line": "1", "function": "f", "text": ""}]},
        {"frames": [{"file": None, "line": 1, "function": "f", "text": ""}]},
        {"threads": [{"name": None, "frames": []}]},
        {"threads": [{"frames": []}]},
        {"more": 1},
    ],
)
def test_what_is_no_process_is_refused(wrong):
    with pytest.raises((TypeError, KeyError)):
        stacks.load({**pack(process(0, REDUCE)), **wrong})


def test_a_name_that_is_not_utf_8_is_told_as_far_as_it_is():
    told = pack(process(0, (Frame("/w/tr\udcff.py", 1, "f"),)))
    assert stacks.load(told).frames[0].file == "/w/tr?.py"


@pytest.mark.parametrize("nameless", ["<genexpr>", "<listcomp>", "<lambda>"])
def test_what_has_no_name_is_called_by_its_caller(nameless: str):
    inner = Frame("/work/data.py", 7, nameless, "x * x for x in rows")
    stack = (inner, Frame(f"{LIB}/fast.py", 3, "mean"), *LOADS)
    assert doing(stack) == "in load_batch (data.py:88)"
    assert samples.place(stack[::-1]) == "load_batch (data.py:88)"
    assert samples.place(stack[::-1], of_line=True) == "`time.sleep(9)` (data.py:88)"
    assert samples.place([inner]) == f"{nameless} (data.py:7)"
    assert (samples.place([]), samples.place(REDUCE[:1])) == ("", "")
