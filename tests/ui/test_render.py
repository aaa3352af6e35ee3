"""How values are shown."""

import asyncio
import math
from typing import Any

import httpx
import jinja2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allranks.ui import render


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (61.4, "1 min 1 s"),
        (3600, "1 h"),
        (3725, "1 h 2 min"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert render.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "True"),
        (1, "1"),
        (0.1234567, "0.123457"),
        (1e300, "1e+300"),
        (math.inf, "inf"),
        ("NaN", "NaN"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_numbers(value: Any, text: str) -> None:
    assert render.number(value) == text


def test_a_time_is_for_the_readers_zone() -> None:
    shown = render.moment("2026-11-23T18:05:44.189150+00:00")
    assert 'datetime="2026-11-23T18:05:44.189150+00:00"' in shown
    assert 'title="2026-11-23 18:05:44 UTC"' in shown
    assert render.moment(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (44, "now"),
        (-44, "now"),
        (45, "1 min ago"),
        (3000, "50 min ago"),
        (3500, "1 h ago"),
        (-7200, "in 2 h"),
        (4 * 86400, "4 d ago"),
        (40 * 86400, "1 mo ago"),
        (800 * 86400, "2 y ago"),
    ],
)
def test_relative_times(seconds: float, text: str) -> None:
    assert render.relative(seconds) == text


def test_an_address_keeps_what_is_not_changed() -> None:
    assert render.with_query({"a": "1", "b": ""}, limit=100) == "?a=1&limit=100"
    assert render.with_query({"a": "1"}, a=None) == "?"
    assert render.with_query({"job": ["x y", "z&"]}) == "?job=x+y&job=z%26"


def test_every_value_is_escaped() -> None:
    made = render.environment().from_string("{{ a }}{{ b | moment }}{{ c | pretty }}")
    shown = made.render(a="<b>", b="2026-11-23T18:05:44+00:00", c={"<i>": "</i>"})
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "<time" in shown


def test_names_in_backticks_are_code() -> None:
    shown = render.code("`<b>` is not a key in `limits`, a ` b")
    assert shown == "<code>&lt;b&gt;</code> is not a key in <code>limits</code>, a ` b"


def test_values_within_values_are_shown_as_pairs() -> None:
    made = render.environment().from_string('{% from "macros.html" import facts %}{{ facts(it) }}')
    value = {"my_key": {"name": "<b>"}, "none": None, "size": 2048, "on": True, "n": 0}
    assert made.render(it=value) == (
        '<dl class="pairs"><dt>my_key</dt><dd>'
        '<dl class="pairs"><dt>name</dt><dd>&lt;b&gt;</dd></dl>'
        "</dd><dt>size</dt><dd>2.0 kB</dd><dt>on</dt><dd>yes</dd><dt>n</dt><dd>0</dd></dl>"
    )
    assert made.render(it=["a", 1]) == "a, 1"
    assert made.render(it=[{"a": 1}]) == (
        '<ul><li><dl class="pairs"><dt>a</dt><dd>1</dd></dl></li></ul>'
    )
    assert made.render(it="a\nb") == '<pre tabindex="0">a\nb</pre>'


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ({"blue": 100}, ["100 %, 0 % when green is ready", "0 %, 100 % when it is ready"]),
        ({"blue": 9}, ["9 %, 0 % when green is ready", "0 %, 100 % when it is ready"]),
        ({"green": 100}, ["0 %", "100 %"]),
        ({}, ["0 %", "0 %, 100 % when it is ready"]),
    ],
)
def test_traffic_that_waits_for_a_deployment_is_shown(
    shares: dict[str, int], shown: list[str]
) -> None:
    macro = '{% from "macros.html" import traffic %}{{ traffic(it, name) }}'
    made = render.environment().from_string(macro)
    deployments = [{"name": name, "takes_traffic": name == "green"} for name in ("blue", "green")]
    endpoint = {"traffic": shares, "deployments": deployments}
    endpoint["traffic_when_ready"] = {"green": 100}
    assert [made.render(it=endpoint, name=name) for name in ("blue", "green")] == shown
    endpoint["deployments"] = deployments[:1]
    assert made.render(it={**endpoint, "traffic": {"blue": 100}}, name="blue") == "100 %"


def test_a_page_whose_later_part_has_a_defect_is_whole_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def later() -> str:
        raise KeyError("missing")

    async def page(request: Request) -> Response:
        return render.page_in_parts(request, "page.html", later)

    async def answer() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.get("http://x/")

    app = Starlette(routes=[Route("/", page)])
    templates = jinja2.DictLoader({"page.html": "<main>{{ later }}</main>"})
    app.state.templates = jinja2.Environment(loader=templates, autoescape=True)
    text = asyncio.run(answer()).text
    assert text.startswith("<main><p")
    assert "has a defect" in text
    assert text.endswith("</main>")
    assert "KeyError: 'missing'" in caplog.text
