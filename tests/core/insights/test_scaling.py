"""Reports on scaling: the reference numbers, Amdahl's law, and work that was not equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.insights import amdahl
from allranks.core.insights.comparable_runs import Same, command
from allranks.core.insights.job_facts import Facts, Point, Series, counted, epochs, samples
from allranks.core.insights.scaling import scaling

HOUR, MINUTE = 3600.0, 60.0
REQUEST = {"code": "abc", "command": "python train.py", "inputs": "{}"}


def run(name, nodes, seconds, *, procs=1, before=0.0, after=0.0, **more):
    started = 1000.0 + before
    times = {"started_at": started, "ranks_ended_at": started + seconds}
    fields = {"nodes": nodes, "ranks": nodes * procs, "created_at": 1000.0, "request": REQUEST}
    return Facts(name, **{**fields, **times, "ended_at": started + seconds + after, **more})


def told(name, values, ranks=1):
    points = tuple(Point(float(i), value, i) for i, value in enumerate(values))
    return tuple(Series(name, points, rank=rank) for rank in range(ranks))


def trained(ranks, epochs, each):
    """What ranks tell that went through so many epochs of ``each`` samples a rank."""
    ends = [each * (i + 1) for i in range(epochs)]
    return told("epoch", range(epochs), ranks) + told("samples", ends, ranks)


# ---------------------------------------------------------------- reference numbers


def test_three_nodes_of_a_long_training():
    found = scaling([run("one", 1, 26614), run("three", 3, 11605)])
    gain = found.rows[1].gain
    assert round(gain.speedup, 2) == 2.29
    assert round(100 * gain.efficiency, 1) == 76.4
    assert found.unit == "nodes"


def test_end_to_end_is_told_apart():
    one = run("one", 1, 7.5 * HOUR, before=0.25 * HOUR, after=0.25 * HOUR)
    three = run("three", 3, 3.5 * HOUR, before=0.25 * HOUR, after=6 * MINUTE)
    found = scaling([three, one])
    assert found.rows[1].whole == 3 * HOUR + 51 * MINUTE
    assert round(100 * found.rows[1].whole_gain.efficiency, 1) == 69.3
    assert found.rows[1].gain.efficiency > found.rows[1].whole_gain.efficiency
    assert found.rows[0].overhead == 0.5 * HOUR


def test_divided_epochs_of_unsharded_data_are_not_equal_work():
    one = run("one", 1, 7.5 * MINUTE, metrics=trained(1, 12, 60000))
    four = run("four", 4, 5 * MINUTE, metrics=trained(4, 3, 60000))
    for found in (scaling([one, four]), scaling([one, four], assume_equal=True)):
        assert found.work.same is Same.UNEQUAL
        assert all(row.gain is None and row.whole_gain is None for row in found.rows)
        assert (found.fit, found.next) == (None, None)
        assert [row.time for row in found.rows] == [450, 300]
        epochs_said, sharding_said = found.work.reasons
        assert "3 epochs and one 12: the epochs were divided by the number of ranks" in epochs_said
        assert "the data is not sharded" in sharding_said


# ---------------------------------------------------------------- equal work


def test_equal_work_is_known_when_epochs_and_samples_are_as_many():
    one = run("one", 1, 100, metrics=trained(1, 4, 1000))
    # A sampler pads the last batch of each rank.
    two = run("two", 2, 60, metrics=trained(2, 4, 504))
    found = scaling([one, two])
    assert found.work == (Same.EQUAL, (), False)
    assert found.rows[1].throughput == pytest.approx(2 * 4 * 504 / 60)


def test_as_many_samples_alone_do_not_make_work_equal():
    """Else epochs that were divided, of data that was not, would pass for equal work."""
    runs = [run("a", 1, 100, metrics=told("samples", [720000])), run("b", 4, 60)]
    runs[1] = runs[1]._replace(metrics=told("samples", [180000], 4))
    found = scaling(runs)
    assert found.work.same is Same.ASSUMED
    assert "number of epochs" in found.work.reasons[0]
    assert found.rows[1].gain is not None


def test_unsharded_data_alone_is_more_work():
    runs = [
        run("a", 1, 100, metrics=trained(1, 3, 900)),
        run("b", 3, 99, metrics=trained(3, 3, 900)),
    ]
    found = scaling(runs)
    assert found.work.same is Same.UNEQUAL
    assert ["not sharded" in reason for reason in found.work.reasons] == [True]


def test_steps_of_all_ranks_can_show_that_work_was_equal_but_not_that_it_was_not():
    def steps(ranks, count):
        return told("epoch", [1, 2, 3], ranks) + told("batch_time", [0.1] * count)

    equal = scaling([run("a", 1, 9, metrics=steps(1, 301)), run("b", 3, 4, metrics=steps(3, 101))])
    shared_batch = scaling(
        [run("a", 1, 9, metrics=steps(1, 301)), run("b", 3, 4, metrics=steps(3, 301))]
    )
    assert equal.work.same is Same.EQUAL
    assert shared_batch.work.same is Same.ASSUMED


@pytest.mark.parametrize("what", ["code", "command", "inputs", "environment"])
def test_runs_that_were_asked_for_something_else_are_not_compared(what):
    runs = [run("a", 1, 100), run("b", 2, 60, request={**REQUEST, what: "other"})]
    runs[0] = runs[0]._replace(request={"environment": "e:1", **REQUEST})
    found = scaling(runs)
    assert found.work.same is Same.UNEQUAL
    assert found.work.reasons == (f"{what} differs from a: b",)
    assert found.rows[1].gain is None
    assert scaling(runs, assume_equal=True).rows[1].gain is not None


def test_code_that_is_not_in_the_record_is_said():
    runs = [run("a", 1, 100), run("b", 2, 60, request={**REQUEST, "code": None})]
    assert scaling(runs).work.same is Same.ASSUMED
    assert "the code of some runs is not recorded" in scaling(runs).work.reasons


def test_words_that_only_say_the_size_do_not_make_a_command_another():
    small = "torchrun --nnodes 1 --nproc_per_node=2 train.py --lr 0.1"
    large = "torchrun --nnodes=4 --nproc-per-node 8  train.py --lr 0.1"
    assert command(small) == command(large) == "torchrun train.py --lr 0.1"
    assert command("train.py --epochs 12") != command("train.py --epochs 3")
    assert command("mpirun -np 4 a") == command("mpirun -np 16 a")


def test_a_restart_leaves_work_unknown():
    one = run("one", 1, 100, metrics=trained(1, 4, 1000))
    two = run("two", 2, 60, metrics=trained(2, 1, 500), attempts=2)
    found = scaling([one, two])
    assert found.work.same is Same.ASSUMED
    assert any("2 attempts" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("values", "count"),
    [([64, 128, 192, 64, 128], 320), ([5], 5), ([], 0), ([10, 20, 30], 30), ([3, 3, 3], 3)],
)
def test_a_counter_may_begin_anew(values, count):
    assert counted(values) == count


def test_what_can_be_read_in_two_ways_is_not_read():
    same = Facts("a", metrics=told("samples", [600, 600, 600]))
    assert samples(same) is None
    assert samples(same._replace(metrics=same.metrics + told("epoch", [0, 1, 2]))) == {0: 1800}
    assert epochs(Facts("a", ranks=2, metrics=told("epoch", [0.5, 1.5]))) == 1.5
    of_two = (*told("epoch", [0, 1]), Series("epoch", (Point(0.0, 0.0),), rank=1))
    assert epochs(Facts("a", ranks=2, metrics=of_two)) is None
    assert samples(Facts("a", ranks=2, metrics=told("samples", [5]))) is None
    assert epochs(Facts("a", metrics=told("epoch", [1, float("nan"), 2, float("inf")]))) == 2


# ---------------------------------------------------------------- the report


def test_ranks_are_the_size_where_nodes_do_not_tell_it():
    found = scaling([run("a", 1, 100), run("b", 1, 30, procs=4)])
    assert (found.unit, found.rows[1].size) == ("ranks", 4)
    several = scaling([run("a", 1, 100, procs=8), run("b", 2, 60, procs=8)])
    assert (several.unit, several.rows[1].size) == ("nodes", 2)


def test_repeats_of_the_smallest_size_give_their_median():
    runs = [run(f"a{i}", 1, seconds) for i, seconds in enumerate([90, 100, 400])]
    found = scaling([*runs, run("b", 2, 50)])
    assert found.rows[-1].gain.speedup == 2


def test_what_did_not_complete_is_left_out_and_said():
    found = scaling([run("a", 1, 9), run("b", 2, 5, status="Failed"), Facts("c", "Queued")])
    assert [row.name for row in found.rows] == ["a"]
    assert found.warnings[:2] == ("b is Failed: left out", "c is Queued: left out")
    assert "have the same size" in found.warnings[2]
    assert scaling([Facts("c", "Queued")]).rows == ()


def test_nodes_of_one_machine_are_said():
    found = scaling([run("a", 1, 9, hosts=("h",)), run("b", 3, 5, hosts=("h", "h", "h"))])
    assert "several nodes ran on one machine and shared its CPUs: b" in found.warnings
    found = scaling([run("a", 1, 9), run("b", 3, 5, hosts=(None, "h", None))])
    assert "several nodes ran on one machine" not in " ".join(found.warnings)


def test_faster_than_ideal_is_doubted():
    found = scaling([run("a", 1, 100), run("b", 2, 40)])
    assert any("b is more than 2 times as fast" in warning for warning in found.warnings)


def test_times_off_the_law_are_said():
    found = scaling([run("a", 1, 100), run("b", 2, 90), run("c", 4, 30), run("d", 8, 29)])
    assert any("deviates from the fitted law" in warning for warning in found.warnings)


# ---------------------------------------------------------------- Amdahl


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)],
)
def test_student_is_as_in_the_tables(freedom, t):
    assert amdahl.student(freedom) == pytest.approx(t, abs=5e-5)


def test_the_line_and_its_interval_are_those_of_a_textbook_regression():
    """x = 1/n; numbers of numpy's least squares and its covariance."""
    times = [(1, 102.0), (2, 61.0), (4, 37.5), (8, 29.0), (8, 27.0)]
    found = amdahl.fit(times)
    assert found.fixed == pytest.approx(17.25862069, rel=1e-6)
    assert found.shared == pytest.approx(85.10344828, rel=1e-6)
    assert found.fixed_interval == pytest.approx((14.47674831, 20.04049307), rel=1e-5)
    assert found.shared_interval == pytest.approx((79.73729633, 90.46960022), rel=1e-5)


TIMES = st.floats(1.0, 1e6)


@given(TIMES, TIMES, st.sets(st.integers(1, 1000), min_size=3, max_size=8))
def test_times_of_the_law_are_found_again(fixed, shared, sizes):
    found = amdahl.fit([(n, fixed + shared / n) for n in sizes])
    if found.note:  # at the very edge of zero, rounding decides
        return
    assert found.at(1) == pytest.approx(fixed + shared, rel=1e-3)
    for n in sizes:
        band = found.band(n)
        assert band.low <= found.at(n) <= band.high


def test_two_sizes_are_solved_and_nothing_more_is_claimed():
    found = scaling([run("one", 1, 26614), run("three", 3, 11605)])
    assert found.fit.shared == pytest.approx(1.5 * (26614 - 11605))
    assert found.fit.fixed == pytest.approx(26614 - 1.5 * (26614 - 11605))
    assert (found.fit.band(3), found.next.interval) == (None, None)
    assert found.fit.note == amdahl.EXACT
    assert found.next.seconds == pytest.approx(1.5 * (26614 - 11605) / 12)


def test_what_one_more_saves_has_an_interval():
    times = [(1, 102.0), (2, 61.0), (4, 37.5), (8, 28.0)]
    found = scaling([run(f"n{n}", n, seconds) for n, seconds in times])
    assert found.next.size == 8
    assert found.next.interval.low < found.next.seconds < found.next.interval.high
    assert found.next.seconds == pytest.approx(found.fit.at(8) - found.fit.at(9))
    assert found.fit.most == pytest.approx(found.fit.at(1) / found.fit.fixed)


def test_times_that_the_law_does_not_describe():
    slower = amdahl.fit([(1, 50.0), (2, 60.0), (4, 80.0)])
    assert (slower.shared, slower.note, slower.saved(4)) == (0, amdahl.SLOWER, 0)
    faster = amdahl.fit([(1, 100.0), (2, 45.0), (4, 21.0)])
    assert (faster.fixed, faster.note, faster.most) == (0, amdahl.FASTER, None)
    assert faster.band(4).low < faster.at(4) < faster.band(4).high
    assert amdahl.fit([(1, 100.0), (2, 40.0)]).note == amdahl.FASTER
    assert amdahl.fit([(2, 100.0), (2, 40.0)]) is None
