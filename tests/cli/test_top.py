"""`allranks top` on narrow screens."""

import pytest

from allranks.cli.admin.top import _fitting

ROW = ("bright_lantern_294gkjsk", "Running", "0", "3 min", "9%", "3.1/64.0 GiB")
OF_NODE = ("97%", "31.2/64.0 GiB", "1.2/3.4 MiB/s")
LOSS = "loss 0.123, acc 0.98"


@pytest.mark.parametrize(
    ("gpus", "width", "expected"),
    [
        (("-", "-"), 200, "NODE AGE CPU MEMORY NODE CPU NODE MEMORY NODE NETWORK"),
        (("-", "-"), 117, "NODE AGE CPU MEMORY NODE CPU NODE MEMORY"),
        (("-", "-"), 110, "NODE AGE CPU MEMORY NODE CPU"),
        (("-", "-"), 90, "NODE AGE CPU MEMORY"),
        (("99%", "70/80 GiB"), 80, "NODE CPU GPU"),
        (("99%", "70/80 GiB"), 20, "CPU GPU"),
    ],
)
def test_optional_columns_are_dropped_before_the_metrics(gpus, width, expected):
    lines = _fitting([(*ROW, *gpus, *OF_NODE, LOSS)], width)
    assert " ".join(lines[0].split()) == f"JOB STATUS {expected} METRICS"
    assert lines[1].endswith(LOSS)
    assert width == 20 or max(map(len, lines)) <= width


def test_no_job_has_all_columns():
    assert _fitting([], 200)[0].split("  ")[0] == "JOB"
