"""`allranks top` on narrow screens."""

import pytest

from allranks.cli.admin.top import _fitting, _rows
from allranks.cli.output import load, rank_table, tables

ROW = ("bright_lantern_294gkjsk", "Running", "0", "3 min", "9%", "-", "3.1/64.0 GiB")
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


def test_metrics_of_ranks_are_one_and_leave_room_for_the_rest():
    ranks = {f"{name}/rank_{rank}": rank / 8 for name in ("loss", "step_time") for rank in range(8)}
    job = {**JOB, "metrics": {**ranks, "accuracy/rank_0": 0.5, "accuracy/rank_1": "NaN"}}
    (row,) = _rows(job)
    assert row[-1] == "loss 0.4375, step_time 0.4375, accuracy NaN"
    lines = _fitting([(*ROW, "-", "-", *OF_NODE, row[-1])], 90)
    assert " ".join(lines[0].split()) == "JOB STATUS NODE AGE CPU MEMORY NODE CPU METRICS"
    assert lines[1].endswith("loss 0.4375 +2")


def test_no_job_has_all_columns():
    assert _fitting([], 200)[0].split("  ")[0] == "JOB"


JOB = {
    "name": "j", "status": "Running", "metrics": {}, "created_at": "2026-01-01T00:00:00+00:00",
    "started_at": None, "load": [], "status_reason": None,
}  # fmt: skip


def node(number, cpu, ranks=(), host=None):
    loads = [{"rank": rank, "cpu": value} for rank, value in ranks]
    whole = {"cpu": 100.0, "memory": 1 << 30}
    return {
        "node": number, "host": host, "now": True, "cpu": cpu, "memory": 1000 * number,
        "memory_total": 1 << 30,        "gpus": [], "ranks": loads, "node_load": whole,
    }  # fmt: skip


def test_many_nodes_are_one_row_with_a_bar_for_each_rank():
    nodes = [node(n, 10.0 * n, [(2 * n + r, 100.0 * r) for r in (1, 0)]) for n in range(16)]
    job = {**JOB, "load": nodes}
    (row,) = _rows(job)
    assert row[:3] == ("j", "Running", "16 nodes")
    assert row[4:7] == ("75 %", "▁█" * 16, "120.0 kB of 17.2 GB")
    job["load"] = [{**each, "host": "one"} for each in nodes]
    assert next(_rows(job))[6] == "120.0 kB of 1.1 GB"
    job["load"] = nodes[:4]
    assert [row[2] for row in _rows(job)] == ["0", "1", "2", "3"]


def test_many_nodes_are_summed_up_and_the_one_with_the_most_is_named():
    rows = dict(load.summary([node(n, 100.0 if n == 700 else 50.0) for n in range(1000)]))
    assert rows["nodes"] == "1000; each bar is a node, from 0 to 999"
    bars, _, text = rows[" cpu"].partition("  ")
    assert len(bars) <= 48
    assert bars.count("█") == 1
    assert text == "50 % to 100 %, the most on node 700"
    assert "the most" not in rows[" all cpu"]
    assert " gpu" not in rows


def test_bars_of_percent_are_full_at_100():
    idle = [node(n, 0.1 if n == 7 else 0.0, [(n, 1.0)]) for n in range(64)]
    rows = dict(load.summary(idle))
    assert "█" not in rows[" cpu"] + rows[" ranks' cpu"]
    assert "█" in rows[" memory"]


def test_ranks_that_are_not_shown_are_counted():
    row = {"node": 0, "host": None, "step": 3, "step_time": None, "waiting": None, "slow": False}
    use = dict.fromkeys(("cpu", "memory", "gpu", "disk", "network"))
    ranks = {"ranks": [{**row, **use, "rank": rank} for rank in range(64)]}
    lines = rank_table.shown(ranks, 8, ": allranks top j")
    assert len(lines) == 10
    assert lines[-1] == "and 56 ranks more: allranks top j"
    assert len(rank_table.shown(ranks, 64)) == 65


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("one two three four", ["one two", "three four"]),
        ("/a/very/long/path then", ["/a/very/long/path", "then"]),
        ("see /a/very/long/path", ["see", "/a/very/long/path"]),
        ("  indented by two", ["  indented", "by two"]),
        ("深度学习 深度学习", ["深度学习", "深度学习"]),
    ],
)
def test_lines_end_between_words(text, lines):
    assert tables.wrapped(text, 10) == lines
