"""What anybody may have put into the message of a page."""

from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import Response

from allranks.ui.messages import COOKIE, leave, take


@pytest.mark.parametrize(
    "value", ["", "1", '["star", Infinity, []]', '["star", 1, []]', '[["star"], 1, 2]', "[" * 1200]
)
def test_a_message_that_is_none(value: str):
    cookie = f"{COOKIE}={quote(value)}".encode()
    assert take(Request({"type": "http", "headers": [(b"cookie", cookie)]})) is None


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "a is archived"), (["a", "b"], "2 jobs are archived")]
)
def test_what_was_done_to_one_and_to_several(names: list[str], text: str):
    answer = Response()
    leave(answer, "archive", names)
    cookie = answer.headers["set-cookie"].partition(";")[0].encode()
    message = take(Request({"type": "http", "headers": [(b"cookie", cookie)]}))
    assert message is not None
    assert (message.text, message.undo) == (text, "restore")
