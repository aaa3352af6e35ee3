"""Wrong lines that ranks append to ALLRANKS_METRICS_FILE are reported, as the server sees them."""

import json

import pytest

from allranks.agent.monitoring.logged_lines import LoggedLines
from allranks.core.metrics import metric_lines

GOOD = b'{"points": [["loss", 0, 1, 1.5, 0.25]]}\n'


@pytest.mark.parametrize(
    ("line", "points", "tags", "is_whole"),
    [
        (GOOD, 1, 0, True),
        (b'{"points": [["loss", null, 1, 1.5, NaN]]}', 1, 0, True),
        (b'{"points": [["a", "0", "1", "1.5", "0.25"], ["a", 0, 1.9, 2, 1]]}', 2, 0, True),
        (b'{"points": []}', 0, 0, True),
        (b'{"tags": {"a": 1}}', 0, 1, True),
        (b'{"tags": {"a": 1}, "points": [["loss", 0, 1, 1.5, 1]]}', 1, 1, True),
        (b'{"points": [["loss", 0, 1, 1.5, 1], ["loss", 0, 2, -1.0, 1]]}', 1, 0, False),
        (b'{"points": [["loss", 0, 1, 1.5, 1], ["loss", 0, 1e300, 1.5, 1]]}', 1, 0, False),
        (b'{"points": [["loss", 0, 1, 1.5, 1], 3]}', 1, 0, False),
        (b'{"tags": {"a": 1, "": 2}}', 0, 1, False),
        (b'{"tags": {"a": 1}, "points": 3}', 0, 1, False),
        (b'{"tags": ["a"], "points": [["loss", 0, 1, 1.5, 1]]}', 1, 0, False),
        (b"loss=0.25", 0, 0, False),
        (b"", 0, 0, False),
        (b"[]", 0, 0, False),
        (b"{}", 0, 0, False),
        (b'{"tags": ["a"]}', 0, 0, False),
        (b'{"points": [["loss", 0, 1, 0.25]]}', 0, 0, False),
        (b'{"points": [["loss", 0, 1, 1.5, "x"]]}', 0, 0, False),
        (b'{"points": [["loss", 3000000000, 1, 1.5, 1]]}', 0, 0, False),
        (b'{"points": [["loss", 0, 1, NaN, 1]]}', 0, 0, False),
        (b'{"points": {"a": 1}}', 0, 0, False),
        (b"[" * 100_000, 0, 0, False),
        (b"\xff", 0, 0, False),
    ],
)
def test_each_point_and_tag_of_a_line_stands_alone(
    line: bytes, points: int, tags: int, is_whole: bool
) -> None:
    read = metric_lines.read(line)
    assert (len(read.points), len(read.tags), read.is_whole) == (points, tags, is_whole)


def test_a_line_of_which_only_a_part_is_recorded_is_reported_so(tmp_path):
    file = tmp_path / "logged.jsonl"
    file.write_bytes(b'{"points": [["loss", 0, 1, 1.5, 1], ["loss", 0, 2, -1.0, 1]]}\n')
    lines = LoggedLines(file)
    lines.look()
    (note,) = lines.notes()
    assert note["message"].startswith(
        "line 1 of ALLRANKS_METRICS_FILE recorded nothing, or not all that it says"
    )


def test_the_first_wrong_line_is_named_and_the_others_are_counted(tmp_path):
    file = tmp_path / "logged.jsonl"
    lines = LoggedLines(file)
    lines.look()
    assert lines.notes() == []
    file.write_bytes(GOOD * 2 + b"loss=0.25 " + b"x" * 500)
    lines.look()
    assert lines.notes() == [], "it may not be complete yet"
    with file.open("ab") as more:
        more.write(b"\n" + GOOD + b"oops\n" + GOOD.strip())
    lines.look(last=True)
    (note,) = lines.notes()
    assert note["message"].startswith("line 3 and 2 more of ALLRANKS_METRICS_FILE recorded nothing")
    assert len(note["message"]) < 300
    json.dumps(note)
