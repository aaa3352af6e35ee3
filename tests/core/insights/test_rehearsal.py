"""Whether a killed job goes on as if it had not been: the whole table, and what always holds."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.insights.rehearsal import (
    ENOUGH,
    HINTS,
    TOLERANCE,
    VERIFIED,
    Result,
    Verdict,
    backwards,
    begins_anew,
    clock,
    difference,
    is_counted,
    is_covered,
    is_enough,
    judge,
    notes,
    sentence,
    trail,
)

# One may be 0, or none at all: they are the same, or not, as all others.
VALUES = st.floats(allow_subnormal=True)


@st.composite
def trails(draw, values=VALUES, least: int = 1):
    """A whole trail of two metrics, its kill (of which two steps are before, at least), and its
    checkpoint, which at least that many steps are before."""
    count, stride = draw(st.integers(5, 30)), draw(st.integers(1, 7))
    start = draw(st.integers(0, 5))
    steps = [start + stride * n for n in range(count)]
    whole = {name: {step: draw(values) for step in steps} for name in ("acc", "loss")}
    kill = draw(st.integers(max(2, least), count - 1))
    checkpoint = draw(st.integers(least, kill))
    return whole, steps, kill, checkpoint, stride


def telling(whole, steps, tolerance=0.0):
    """Whether half of the values of these steps of a metric differ from the step before."""
    for told in whole.values():
        order = sorted(told)
        pairs = [(one, other) for one, other in pairwise(order) if other in steps]
        moves = [
            math.isfinite(told[b]) and difference(told[a], told[b]) > tolerance for a, b in pairs
        ]
        if moves and 2 * sum(moves) >= len(moves):
            return True
    return False


def cut(whole, steps):
    return {name: {step: told[step] for step in steps} for name, told in whole.items()}


@given(trails())
def test_what_goes_on_to_the_bit_is_exact_and_tells_how_much_was_done_twice(made):
    whole, steps, kill, checkpoint, stride = made
    found = judge(cut(whole, steps[:kill]), cut(whole, steps[checkpoint:]), whole, 0.0)
    verdict = Verdict.EXACT if telling(whole, steps[checkpoint:]) else Verdict.NOT_SHOWN
    assert (found.verdict, found.largest, found.noise) == (verdict, 0.0, 0.0)
    assert found.compared == 2 * (len(steps) - checkpoint)
    assert (found.again, found.skipped) == ((kill - checkpoint) * stride, 0)
    assert (found.last, found.first) == (steps[kill - 1], steps[checkpoint])


@given(trails(), st.data())
def test_the_first_step_that_differs_is_the_one_that_is_told(made, data):
    whole, steps, kill, checkpoint, _ = made
    after = cut(whole, steps[checkpoint:])
    wrong = data.draw(st.sets(st.sampled_from(steps[checkpoint:]), min_size=1))
    for step in wrong:
        value = after["loss"][step]
        after["loss"][step] = value / 2 if math.isfinite(value) and abs(value) > 1e-300 else 7.5
    different = [step for step in wrong if difference(after["loss"][step], whole["loss"][step])]
    found = judge(cut(whole, steps[:kill]), after, whole)
    if different:
        assert found.verdict is Verdict.DIFFERS
        assert (found.parted.metric, found.parted.step) == ("loss", min(different))
        assert found.parted.uninterrupted == pytest.approx(
            whole["loss"][min(different)], nan_ok=True
        )
    else:
        moves = telling(whole, steps[checkpoint:], TOLERANCE)
        verdict = Verdict.EXACT if moves else Verdict.NOT_SHOWN
        assert found.verdict is verdict


def falling(whole):
    """The trail with a loss that moves at every step."""
    return {**whole, "loss": {step: 1e31 / 2**n for n, step in enumerate(whole["loss"])}}


@given(trails(st.floats(1.0, 1e30)), st.floats(1e-9, 1e-2), st.data())
def test_the_tolerance_is_where_within_ends(made, off, data):
    whole, steps, kill, checkpoint, _ = made
    whole = falling(whole)
    after = cut(whole, steps[checkpoint:])
    step = data.draw(st.sampled_from(steps[checkpoint:]))
    after["loss"][step] *= 1 + off
    before = cut(whole, steps[:kill])
    found = judge(before, after, whole, off * 2)
    assert (found.verdict, found.largest) == (Verdict.WITHIN, pytest.approx(off, rel=0.02))
    assert judge(before, after, whole, off / 2).verdict is Verdict.DIFFERS


@given(trails(least=0), st.data())
def test_what_begins_at_the_first_step_starts_from_zero_whatever_it_logs(made, data):
    whole, steps, kill, _, stride = made
    until = data.draw(st.integers(1, len(steps)))
    before, after = cut(whole, steps[:kill]), cut(whole, steps[:until])
    found = judge(before, after, whole)
    assert begins_anew(before, after)
    assert (found.verdict, found.again) == (Verdict.FROM_ZERO, kill * stride)


@given(trails(st.floats(1.0, 1e30)), st.floats(0.01, 0.5))
def test_a_metric_that_is_never_the_same_is_left_out(made, off):
    """Seconds a step, for one: nothing is told of them, and all of the others. One that follows
    from what was learnt is not to be left out: then nothing is verified."""
    whole, steps, kill, checkpoint, _ = made
    whole = {"speed": whole["acc"], "loss": falling(whole)["loss"]}
    before, after = cut(whole, steps[:kill]), cut(whole, steps[checkpoint:])
    for told in (before, after):
        told["speed"] = {step: value * (1 + off) for step, value in told["speed"].items()}
    found = judge(before, after, whole)
    assert (found.verdict, [*found.left_out]) == (Verdict.EXACT, ["speed"])
    assert notes(found) != []
    for name in ("speed", "val_acc"):
        alone = [{name: each["speed"]} for each in (before, after, whole)]
        assert judge(*alone).verdict is Verdict.NOT_REPRODUCIBLE
    beside = [{"loss": each["loss"], "val_acc": each["speed"]} for each in (before, after, whole)]
    assert judge(*beside).verdict is Verdict.NOT_REPRODUCIBLE


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("loss", lambda _: 0.5),
        ("loss", lambda _: math.nan),
        ("at", lambda step: 1.79e9 + step),
        ("train/lr", lambda step: 0.1 / step),
        ("epoch", float),
    ],
)
def test_what_is_the_same_whatever_was_forgotten_verifies_nothing(metric, value):
    whole = {metric: {step: value(step) for step in range(1, 9)}}
    found = judge(cut(whole, [1, 2, 3]), cut(whole, [3, 4, 5]), whole)
    assert found.verdict is Verdict.NOT_SHOWN


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        # It has learnt all there is before the kill, or soon after it.
        ([0.9, 0.5, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0], Verdict.NOT_SHOWN),
        ([0.9, 0.5, 0.4, 0.1, 0.0, 0.0, 0.0, 0.0], Verdict.NOT_SHOWN),
        ([0.9, 0.5, 0.4, 0.3, 0.3, 0.1, 0.1, 0.2], Verdict.EXACT),
        ([0.9, 0.5, 0.4, 0.4, math.nan, math.nan, math.nan, math.nan], Verdict.NOT_SHOWN),
        ([0.9, 0.5, 0.4, 0.4], Verdict.NOT_SHOWN),
        ([0.9, 0.5, 0.4, 0.3], Verdict.EXACT),
    ],
)
def test_only_values_after_the_kill_that_differ_between_steps_prove_anything(losses, verdict):
    whole = {"loss": dict(enumerate(losses))}
    found = judge(cut(whole, [0, 1, 2]), cut(whole, range(3, len(losses))), whole)
    assert found.verdict is verdict


def test_what_was_learnt_is_told_by_the_name_of_a_metric():
    learnt = (
        "train_loss_step",
        "val/acc1",
        "eval.accuracy",
        "grad_norm",
        "Error",
        "loss_per_epoch",
    )
    others = ("grad_seconds", "loss_time", "accelerator", "interrupts", "error_log_bytes", "speed")
    steps = range(1, 9)
    loss = {step: 1.0 / step for step in steps}
    for name in (*learnt, *others):
        noisy = {step: 2.0 / step for step in steps}
        before = {"loss": cut({"": loss}, [1, 2])[""], name: cut({"": noisy}, [1, 2])[""]}
        after = {"loss": cut({"": loss}, [2, 3])[""]}
        whole = {"loss": loss, name: loss}
        found = judge(before, {**after, name: {2: 1.0, 3: 1.0}}, whole)
        assert found.verdict is (Verdict.NOT_REPRODUCIBLE if name in learnt else Verdict.EXACT), (
            name
        )
        alone = {name: loss}
        told = judge(cut(alone, [1, 2]), cut(alone, [2, 3]), alone)
        assert told.verdict is Verdict.EXACT


def test_a_script_that_does_not_repeat_itself_to_the_bit_is_told_so():
    whole = {"loss": {n: float(n) for n in range(1, 9)}}
    before = {"loss": {1: 1.0 + 1e-8, 2: 2.0}}
    found = judge(before, {"loss": {3: 3.0 + 1e-8, 4: 4.0}}, whole)
    assert found.verdict is Verdict.WITHIN
    assert "not bitwise reproducible" in notes(found)[0]


def test_steps_that_nobody_has_logged_are_told_of():
    """What a rank that is killed had still in a buffer."""
    whole = {"loss": {n: float(n) for n in range(1, 9)}}
    found = judge(cut(whole, [1, 2, 3]), cut(whole, [6, 7]), whole)
    assert (found.verdict, found.again, found.skipped) == (Verdict.EXACT, 0, 2)
    told = "resume verified: exact; no step was repeated; 2 steps were logged by neither attempt"
    assert sentence(found, TOLERANCE) == told


def test_what_cannot_be_compared_is_not_verified():
    some = {"loss": {1: 1.0, 2: 2.0}}
    assert judge({"loss": {1: 1.0}}, some, some).verdict is Verdict.NO_STEPS
    epochs = {"loss": [(1, 1.0), (2, 0.9), (1, 0.8)], "lr": [(1, 1.0), (1, 1.0)]}
    assert trail(epochs) == {"lr": {1: 1.0}}
    assert backwards(epochs).startswith("the steps of loss go back")
    assert backwards({"lr": epochs["lr"]}) == ""
    assert judge(some, {"acc": {3: 1.0}}, some).verdict is Verdict.TOO_LITTLE
    assert judge(some, {"loss": {3: 1.0}}, some).verdict is Verdict.TOO_LITTLE


# ---------------------------------------------------------------- trails


@given(VALUES, VALUES)
def test_a_difference_is_nothing_only_for_the_same(one, other):
    found = difference(one, other)
    same = one == other or (math.isnan(one) and math.isnan(other))
    assert found == difference(other, one) >= 0
    assert (found == 0) is same


def test_metrics_whose_steps_go_back_are_no_trail():
    """Counted anew in each epoch, or told by several ranks at once."""
    points = {"loss": [(1, 0.5), (2, 0.4), (2, 0.3)], "batch": [(1, 1.0), (2, 1.0), (1, 1.0)]}
    assert trail(points) == {"loss": {1: 0.5, 2: 0.3}}


def test_the_clock_is_the_metric_with_the_most_steps():
    assert clock({}) is None
    assert clock({"stuck": {0: 1.0}}) is None
    assert clock({"epoch": {1: 1.0, 2: 1.0}, "loss": dict.fromkeys(range(9), 1.0)}) == "loss"
    assert clock({"b": {1: 1.0, 2: 1.0}, "a": {1: 1.0, 2: 1.0}}) == "a"


@pytest.mark.parametrize(
    ("name", "asked", "counted"),
    [
        ("loss", {"loss": r"loss (\S+)"}, True),
        ("loss", {"loss": r"loss (\S+) at (\d+)"}, False),
        ("loss", {"loss": {"pattern": r"(?P<step>\d+) (?P<value>\S+)", "rank": 1}}, False),
        ("loss", {"loss": r"(?P<value>\S+)( s)?"}, True),
        ("loss", {"transformers": "builtin"}, True),
        ("loss", {"keras": "builtin"}, False),
        ("loss", {"keras": {"rank": "all"}}, False),
        ("loss", {"imagenet": "builtin"}, False),
        ("val_acc1", {"imagenet": "builtin"}, True),
        ("train_loss", {"lightning": "builtin"}, False),
    ],
)
def test_steps_that_are_only_counted_are_known(name, asked, counted):
    assert is_counted(name, asked) is counted


def test_how_far_the_two_jobs_are_let_go_on():
    before = {"loss": {1: 1.0, 2: 1.0}, "once": {2: 1.0}}

    def after(last: int):
        return {"loss": dict.fromkeys(range(2, last + 1), 1.0), "once": {2: 1.0}, "late": {9: 1.0}}

    assert not is_enough(before, {}, 1.0, 9.0)
    assert not is_enough(before, after(2), 1.0, 9.0)
    assert not is_enough(before, after(3), 9.0, 1.0)
    assert is_enough(before, after(3), 9.0, 9.0)
    assert is_enough(before, after(2 + ENOUGH), 9.0, 1.0)
    # As far as the second attempt went; of what it does not tell some steps further.
    loss = {"loss": dict.fromkeys(range(1, 4), 1.0)}
    assert not is_covered(before, after(3), loss)
    assert not is_covered(before, after(4), {**loss, "once": {2: 1.0}})
    assert is_covered(before, after(3), {**loss, "once": {2: 1.0}})
    assert is_covered(before, after(3), {"loss": dict.fromkeys(range(1, 4 + ENOUGH), 1.0)})


# ---------------------------------------------------------------- words


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_says_what_it_is_and_how_to_mend_it(verdict):
    found = Result(verdict, left_out={"loss": 0.5}, last=7, first=1)
    told = sentence(found, TOLERANCE, "so and so")
    word = "resume verified: " if verdict in VERIFIED else "resume not verified: "
    assert told.startswith(word + verdict)
    assert bool(HINTS[verdict]) is (verdict not in VERIFIED)


def test_a_parting_is_told_with_its_place():
    whole = {"loss": {1: 1.0, 2: 2.0, 3: 3.0}}
    found = judge(cut(whole, [1, 2]), {"loss": {2: 2.5, 3: 3.5}}, whole)
    assert sentence(found, TOLERANCE) == (
        "resume not verified: continues differently: at step 2, loss is 2.5 instead of 2"
        " (relative difference 0.2, allowed 0.001); 1 step was repeated"
    )
