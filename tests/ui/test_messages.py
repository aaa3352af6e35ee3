"""What anybody may have put into the message of a page."""

from urllib.parse import quote

import pytest
from starlette.requests import Request

from allranks.ui.messages import COOKIE, take


@pytest.mark.parametrize(
    "value", ["", "1", '["star", Infinity, []]', '["star", 1, []]', '[["star"], 1, 2]', "[" * 1200]
)
def test_a_message_that_is_none(value: str):
    cookie = f"{COOKIE}={quote(value)}".encode()
    assert take(Request({"type": "http", "headers": [(b"cookie", cookie)]})) is None
