"""What patterns find in lines: a number, its step, and what is known by name."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.metrics.printed_metrics import (
    MetricPoint,
    NotANumber,
    Reader,
    lines,
    number,
    of_rank,
)
from allranks.core.plan import MetricTask
from allranks.spec.fields.metric_formats import BUILTIN, KNOWN, wrong

# As PyTorch's examples/imagenet writes them.
IMAGENET = "\n".join(
    (
        "=> creating model 'resnet18'",
        "Epoch: [1][   1/5005]\tTime  5.226 ( 5.226)\tData  4.412 ( 4.412)\t"
        "Loss 7.0719e+00 (7.0719e+00)\tAcc@1   0.00 (  0.00)\tAcc@5   0.78 (  0.78)",
        "Epoch: [1][  11/5005]\tTime  0.113 ( 0.580)\tData  0.000 ( 0.401)\t"
        "Loss 6.9e+00 (7.0e+00)\tAcc@1   0.39 (  0.07)\tAcc@5   1.17 (  0.78)",
        "Test: [  1/196]\tTime  3.6 ( 3.6)\tLoss 2.1e+00 (2.1e+00)\tAcc@1  50.00 ( 50.00)",
        " *   Acc@1 54.260 Acc@5 79.012",
        "",
    )
)


def found(pattern, line, name="m"):
    return list(Reader(MetricTask(name, pattern)).find(line))


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"Loss\s+([0-9.]+)", "Epoch 1 Loss  0.5 (0.7)", [(None, 0.5)]),
        (r"Loss\s+([0-9.]+)", "Loss 0.5.", [(None, 0.5)]),
        (r"loss=(\S+)", "loss=1e-3,", [(None, 0.001)]),
        (r"loss=(\S+)", "loss=-inf", [(None, -math.inf)]),
        (r"(\S+)%", "  12.5%", [(None, 12.5)]),
        (r"loss (\S+) at (\d+)", "loss 0.25 at 17", [(17, 0.25)]),
        (r"(?P<step>\d+): (?P<value>\S+)", "3: 4", [(3, 4.0)]),
        (r"(\d+): (?P<value>\S+)", "3: 4", [(None, 4.0)]),
        (r"loss (\S+)(?: at (\d+))?", "loss 0.25", [(None, 0.25)]),
        (r"loss (\S+) at (\S+)", "loss 1 at 1e3", [(1000, 1.0)]),
        (r"loss (\S+) at (\S+)", "loss 1 at nan", [(None, 1.0)]),
        (r"loss (\S+)|acc", "acc", []),
        (r"loss (\S+)", "nothing", []),
    ],
)
def test_the_first_match_of_a_line_is_its_point(pattern, line, expected):
    assert [(each.step, each.value) for each in found(pattern, line)] == expected


def test_what_is_no_number_is_told():
    assert math.isnan(found("l (.*)", "l nan")[0].value)
    with pytest.raises(NotANumber) as error:
        found("l (.*)", "l hello")
    assert error.value.text == "hello"


@given(st.floats(allow_nan=False))
def test_numbers_are_read_as_python_writes_them(value):
    assert number(f" {value!r}, ") == value


@given(st.text())
def test_any_text_is_a_number_or_is_told_as_it_is(text):
    told = None
    try:
        number(text)
    except NotANumber as error:
        told = error.text
    assert told in (None, text)


def test_lines_are_what_a_person_sees():
    text = "a\r\nb\rc\b\bd\x1b[1mbold\x1b[0m\n"
    assert lines(text) == ["a", "b", "c", "dbold", ""]


def test_imagenets_lines_are_known():
    reader = Reader(MetricTask("imagenet", BUILTIN))
    points = [each for line in lines(IMAGENET) for each in reader.find(line)]
    assert points[:5] == [
        MetricPoint("batch_time", 5006, 5.226),
        MetricPoint("data_time", 5006, 4.412),
        MetricPoint("loss", 5006, 7.0719),
        MetricPoint("acc1", 5006, 0.0),
        MetricPoint("acc5", 5006, 0.78),
    ]
    assert points[10:] == [
        MetricPoint("val_acc1", None, 54.26),
        MetricPoint("val_acc5", None, 79.012),
    ]


def test_a_bar_that_begins_anew_shows_old_values():
    bars = (
        "0: 8/8 [l=1.5]",
        "0: 0/8 [l=1.5]",
        "1: 0/8 [l=1.5]",
        "1: 1/8 [l=1.5]",
        "1: 1/8 [l=1.2]",
    )
    text = "\r".join(f"Epoch {bar.replace('[', '[00:00, ')}" for bar in bars)
    reader = Reader(MetricTask("lightning", BUILTIN))
    points = [each for line in lines(text) for each in reader.find(line)] + [*reader.rest()]
    assert points == [MetricPoint("l", 8, 1.5), MetricPoint("l", 9, 1.2)]


@pytest.mark.parametrize("digits", ["9" * 20, "1" * 5000, "9" * 15])
def test_a_step_that_nothing_holds_is_counted(digits):
    told = {
        "keras": (f"Epoch {digits}/2", "5/5 - loss: 0.5"),
        "imagenet": (f"Epoch: [{digits}][1/{digits}]\tTime  0.1 ( 0.1)\tLoss 0.5 (0.2)",),
        "lightning": (f"Epoch {digits}: 1/{digits} [0, loss=0.5]",),
    }
    for name, several in told.items():
        reader = Reader(MetricTask(name, BUILTIN))
        points = [each for line in several for each in reader.find(line)] + [*reader.rest()]
        assert points[-1].value == 0.5
        assert all(point.step is None or point.step < 2**53 for point in points)


@pytest.mark.parametrize("name", KNOWN)
@given(text=st.text())
def test_what_is_known_takes_any_text(name, text):
    for line in lines(text):
        assert all(each.name for each in Reader(MetricTask(name, BUILTIN)).find(line))


def test_a_metric_is_of_one_rank_or_of_all():
    metrics = [MetricTask("a", "(a)"), MetricTask("b", "(b)", None), MetricTask("c", "(c)", 2)]
    names = {rank: [each.name for each in of_rank(metrics, rank)] for rank in range(3)}
    assert names == {0: ["a", "b"], 1: ["b"], 2: ["b", "c"]}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a(", "not a regular expression"),
        ("a", "needs a group"),
        ("(a)(b)(c)", "not 3"),
        (r"(?P<vaule>\d+) at (?P<step>\d+)", "`vaule`"),
        (r"(?P<value>\d+) at (?P<setp>\d+)", "`setp`"),
        (r"(?P<step>\d+) loss (\d+)", "none named `value`"),
        (r"loss [[](\d+)", "possible nested set at position 6"),
        ("(" * 200 + "a" + ")" * 200, "not 200"),
        (r"step (\d+) loss (\S+)", "has the step first"),
        (r"\((\d{1,6})\) [(]loss ([^()]+)", "has the step first"),
        (r"([0-9]+): ([0-9.]+)", "has the step first"),
    ],
)
def test_a_pattern_that_can_find_nothing_is_refused(pattern, said):
    told = wrong(pattern)
    assert told is not None
    assert said in told[0]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a)",
        "(a) (b)",
        "(x)(?P<value>a)(b)(c)",
        "(?:x)(a)",
        r"[\[](a)",
        r"loss (\S+) at (\d+)",
        r"loss (\S+)(?: at (\d+))?",
        r"(\d+) of (\d+)",
        r"([\d.]+) of (\S+)",
    ],
)
def test_a_pattern_with_one_number_is_taken(pattern):
    assert wrong(pattern) is None
