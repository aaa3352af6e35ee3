"""The process that makes the web page. Nothing of it is imported here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec

from allranks.server.http.child_server import ChildServer
from allranks.settings import Home

_NEEDED = ("httpx", "jinja2", "plotly", "python_multipart")


@cache
def installed() -> bool:
    """Whether the extra `[ui]` is installed."""
    return all(find_spec(each) is not None for each in _NEEDED)


class UiServer(ChildServer):
    """``url``: where the API answers on this machine."""

    title = "the web page"
    health = "/ui/health"

    def __init__(self, home: Home, url: str) -> None:
        super().__init__(home.ui)
        self._url = url

    def command(self, socket: str) -> Sequence[str]:
        return [sys.executable, "-P", "-m", "allranks.ui", "--socket", socket, "--api", self._url]

    def environment(self) -> Mapping[str, str]:
        return {"ALLRANKS_UI": str(self._folder)}  # marks its process in `ps`

    def hint(self) -> str:
        return "see that log; reinstall it: pip install 'allranks[ui]'"
