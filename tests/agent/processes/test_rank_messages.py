"""What any process of a job may write to its agent."""

import pytest

from allranks.agent.processes import rank_messages


def test_a_message():
    assert rank_messages.load(b'{"a": [1, -2.5, null, true]}') == {"a": [1, -2.5, None, True]}


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1e400}',
        b'{"a": [NaN]}',
        b'{"a": -Infinity}',
        b'{"a": 9223372036854775808}',
        b"[]",
        b'{"a": ' + b"[" * 60000,
        b"\xff",
        b"",
        b"9" * 5000,
    ],
)
def test_what_a_record_cannot_hold_is_no_message(data: bytes):
    with pytest.raises(ValueError, match=r".*"):
        rank_messages.load(data)
