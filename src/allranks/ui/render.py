"""HTML from templates. Every value is escaped; times and numbers are shown as people write them."""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChainableUndefined, Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup, escape
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from allranks.core.amounts import counted, size_text
from allranks.core.job.marks import NOTE, STAR, without_marks
from allranks.errors import AllranksError
from allranks.statuses import TERMINAL
from allranks.ui.markdown import markdown
from allranks.ui.messages import COOKIE, Message, take
from allranks.version import __version__

log = logging.getLogger("allranks.ui")

FOLDER = Path(__file__).parent
# Of relative times, in seconds; a page may be looked at for years after.
_UNITS = ((31557600, "y"), (2629800, "mo"), (86400, "d"), (3600, "h"), (60, "min"))
_ENDED = {str(each) for each in TERMINAL}


class _Query(dict[str, str]):
    """The values in an address; those that are not there are empty. ``lists``: all of each key."""

    def __init__(self, params: QueryParams) -> None:
        super().__init__(params)
        self.lists = {key: params.getlist(key) for key in params}

    def __missing__(self, key: str) -> str:
        return ""


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        # What a job of another type lacks is left out, rather than the page.
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "duration": duration,
        "moment": moment,
        "number": number,
        "size": size_text,
        "counted": counted,
        "word": shlex.quote,
        "path": lambda text: quote(str(text), safe="", errors="surrogateescape"),
        "with": with_query,
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str),
        "printable": printable,
        "frame": frame,
        "code": code,
        "markdown": markdown,
        "without_marks": without_marks,
    }
    made.globals |= {
        "NOTE": NOTE,
        "STAR": STAR,
        "version": __version__,
        "ended": lambda status: status in _ENDED,
        "seconds_taken": seconds_taken,
    }
    return made


def duration(seconds: float | None) -> str:
    """``1 h 2 min``; a dash for none."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, big, small in ((86400, "d", "h"), (3600, "h", "min"), (60, "min", "s")):
        if whole >= size:
            part = whole % size // {86400: 3600, 3600: 60, 60: 1}[size]
            return f"{whole // size} {big}" + (f" {part} {small}" if part else "")
    return f"{whole} s"


def seconds_taken(job: Mapping[str, Any]) -> float | None:
    """How long an ended job took, as the list of jobs counts it."""
    begin, end = job.get("started_at"), job.get("ended_at")
    if not begin or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def moment(text: str | None) -> Markup:
    """How long ago a time was, or how far off it is; the exact one is its title, which the browser
    turns into the reader's own zone."""
    if text is None:
        return Markup("–")
    at = datetime.fromisoformat(text)
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    shown = relative((datetime.now(UTC) - at).total_seconds())
    return Markup(f'<time datetime="{escape(text)}" title="{exact}">{shown}</time>')


def relative(seconds: float) -> str:
    """``5 min ago``, ``in 2 h``; `page.js` says the same as time goes on."""
    size = abs(seconds)
    if size < 45:
        return "now"
    near = (unit for unit in _UNITS if size >= 0.95 * unit[0])
    whole, name = next(near, _UNITS[-1])
    amount = f"{size / whole:.0f} {name}"
    return f"{amount} ago" if seconds > 0 else f"in {amount}"


def number(value: Any) -> str:
    """At most six digits; strings stand for what JSON cannot hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:.6g}"


def with_query(query: Mapping[str, Any], **changes: Any) -> str:
    """The query of an address with some values changed; None removes one."""
    merged = {**getattr(query, "lists", query), **changes}
    left = {key: value for key, value in merged.items() if value not in (None, "", [])}
    return "?" + urlencode(left, doseq=True)


def frame(entry: Mapping[str, Any]) -> str:
    """A frame of a stack as Python prints it."""
    line = f"{entry['file']}:{entry['line']} in {entry['function']}"
    return f"{line}\n    {entry['text']}" if entry.get("text") else line


def code(text: object) -> Markup:
    """A sentence whose `names` in backticks are code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def printable(text: str) -> str:
    """Text with lone surrogates, which stand for bytes that are not UTF-8, replaced."""
    return text.encode("utf-8", "replace").decode()


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page from a template, which also gets the person and the secret of the forms."""
    message = take(request)
    return _without_message(
        message, HTMLResponse(text(request, template, message, **values), status)
    )


# Where a page waits for a part of it.
_LATER = "<!-- later -->"


def page_in_parts(
    request: Request, template: str, later: Callable[[], Awaitable[str]], **values: Any
) -> Response:
    """A page that is sent up to `{{ later }}` at once, so that it is seen while that part is
    computed."""
    message = take(request)
    html = text(request, template, message, later=Markup(_LATER), **values)
    before, _, after = html.partition(_LATER)

    async def parts() -> AsyncIterator[str]:
        yield before
        try:
            yield await later()
        except AllranksError as error:
            yield f'<p class="empty">{escape(error)}</p>'
        except Exception:
            # The page has begun: it can no longer be that of the defect.
            log.exception("a part of %s", request.url.path)
            what = "this part has a defect: see `ui/server.log` in the server's home"
            yield f'<p class="empty">{code(what)}</p>'
        yield after

    return _without_message(message, StreamingResponse(parts(), media_type="text/html"))


def _without_message(message: Message | None, answer: Response) -> Response:
    if message is not None:
        answer.delete_cookie(COOKIE, path="/ui")
    return answer


def text(request: Request, template: str, outcome: Message | None = None, /, **values: Any) -> str:
    """See ``page``; also of a part of a page."""
    state = request.state
    html: str = request.app.state.templates.get_template(template).render(
        person=getattr(state, "person", None),
        forms=getattr(state, "forms", ""),
        address=request.url.path,
        query=_Query(request.query_params),
        outcome=outcome,
        **values,
    )
    return html
