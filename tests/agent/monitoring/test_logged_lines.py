"""Wrong lines that ranks append to ALLRANKS_METRICS_FILE are reported, as the server sees them."""

import json

import pytest

from allranks.agent.monitoring.logged_lines import LoggedLines, is_valid
from allranks.server.agents.routes import tags_of
from allranks.store import metric_points

GOOD = b'{"points": [["loss", 0, 1, 1.5, 0.25]]}\n'


@pytest.mark.parametrize(
    "line",
    [
        GOOD,
        b'{"points": [["loss", null, 1, 1.5, NaN]]}\n',
        b'{"points": [["loss", "0", "1", "1.5", "0.25"], ["loss", 0, 1.9, 2, 1]]}\n',
        b'{"points": []}\n',
        b'{"tags": {"a": 1}}\n',
        b'{"tags": {"a": 1}, "points": [["loss", 0, 1, 1.5, 1]]}\n',
        b"loss=0.25\n",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"tags": ["a"]}\n',
        b'{"points": [["loss", 0, 1, 0.25]]}\n',
        b'{"points": [["loss", 0, 1, -1.0, 0.25]]}\n',
        b'{"points": [["loss", 0, 1, 1.5, "x"]]}\n',
        b'{"points": [["loss", 0, 1e300, 1.5, 1]]}\n',
        b'{"points": [["loss", 3000000000, 1, 1.5, 1]]}\n',
        b'{"points": [["loss", 0, 1, NaN, 1]]}\n',
        b'{"points": 3}\n',
        b"\xff\n",
    ],
)
def test_a_line_is_valid_if_the_server_records_it(line):
    ((_, rows),) = metric_points._lines("logged", 0, line)
    empty = b'"points": []' in line
    assert is_valid(line) == (bool(rows) or bool(tags_of(line)) or empty)


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
