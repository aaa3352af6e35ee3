"""What an action has done, said on the page that follows it; with a way back where there is one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from allranks.core.amounts import counted

COOKIE = "allranks_done"
# Actions, what they have done to one thing or to several, and the action that undoes it.
_DONE = {
    "cancel": ("is", "are", "being canceled", ""),
    "restart": ("runs", "run", "", ""),
    "preempt": ("is", "are", "being preempted", ""),
    "release": ("is", "are", "released", ""),
    "tag": ("has", "have", "these tags", ""),
    "note": ("has", "have", "this note", ""),
    "star": ("is", "are", "starred", "unstar"),
    "unstar": ("is", "are", "no longer starred", "star"),
    "archive": ("is", "are", "archived", "restore"),
    "restore": ("is", "are", "in lists again", "archive"),
    "delete": ("is", "are", "deleted", ""),
    "register": ("is", "are", "registered", ""),
    "upload": ("is", "are", "uploaded", ""),
    "deploy": ("starts", "start", "to answer", ""),
}
# Names in a cookie.
_MOST = 40


class Message(NamedTuple):
    text: str
    undo: str
    jobs: list[str]


def leave(answer: Response, action: str, names: Sequence[str]) -> None:
    """Say on the next page what was done to the ``names``."""
    value = quote(json.dumps([action, len(names), names[:_MOST]]))
    answer.set_cookie(COOKIE, value, max_age=60, path="/ui", httponly=True, samesite="lax")


def take(request: Request) -> Message | None:
    """The message that an action left, if there is one. Anybody may have written it."""
    try:
        action, count, names = json.loads(unquote(request.cookies.get(COOKIE, "")))
        of_one, of_several, done, undo = _DONE[action]
        names = [str(name) for name in names]
        subject = (
            f"{names[0]} {of_one}" if count == 1 else f"{counted(int(count), 'job')} {of_several}"
        )
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return Message(f"{subject} {done}".rstrip(), undo if count == len(names) else "", names)
