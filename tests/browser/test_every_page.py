"""Every page in light and dark, on a wide screen, a laptop and a phone."""

import io
import json
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.ui.app import _PAGES
from tests.browser.conftest import Site, watched
from tests.support import answer, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_WIDTHS = (1440, 1024, 390)
_TABS = ("", "/metrics", "/ranks", "/logs", "/logs?rank=0", "/files", "/code", "/report", "/stacks")
_TABS += ("/details",)
_DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADU"
    "lEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
_CELL = {
    "cell_type": "code",
    "source": "1 + 1",
    "outputs": [],
    "metadata": {},
    "execution_count": 1,
}
_NOTEBOOK = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [_CELL]})
# Ten ranks, one of them late and one with a NaN; an attempt that fails; files of each kind.
_RICH = f"""\
import base64, os, pathlib
rank = int(os.environ["RANK"])
for step in range(20):
    value = "nan" if (rank, step) == (7, 9) else 0.5 + (rank == 4) + rank / 1000
    print(f"step {{step}} time {{value}}", flush=True)
if rank == 0:
    pathlib.Path(os.environ["ALLRANKS_STATE_DIR"], "step").write_text("1")
    out = pathlib.Path("outputs")
    out.mkdir(exist_ok=True)
    (out / "a.md").write_text("# Title\\n\\n| a | b |\\n|--|--|\\n| [x](y) | `z` |\\n")
    (out / "a.ipynb").write_text({_NOTEBOOK!r})
    for step in range(2):
        (out / f"sample_{{step}}.png").write_bytes(base64.b64decode("{_DOT}"))
    (out / "a.wav").write_bytes(bytes.fromhex("{{WAV}}"))
    if os.environ["ALLRANKS_ATTEMPT"] == "1":
        raise ValueError("a link is down")
"""
_SCHEDULE = """\
name: nightly
trigger: {type: cron, expression: "0 3 1 1 *"}
create_job: {command: "true"}
"""
_COMPONENT = """\
name: say
type: command
inputs: {text: {type: string}}
command: echo "${{inputs.text}}"
"""
_PLACES = [
    "/",
    "/?status=Failed",
    "/?name=nosuch",
    "/?parent=sweep",
    *(f"/jobs/{name}{tab}" for name in ("good", "bad", "rich") for tab in _TABS),
    *(f"/jobs/{name}{tab}" for name in ("sweep", "pipe") for tab in ("", "/files", "/details")),
    "/jobs/rich?nodes=all",
    "/jobs/rich/metrics?rank=each",
    *(f"/jobs/good/files?path=artifacts/outputs/{name}" for name in ("a.csv", "a.json", "b.html")),
    "/jobs/rich/files?folder=artifacts/outputs",
    *(f"/jobs/rich/files?path=artifacts/outputs/{name}" for name in ("a.md", "a.ipynb", "a.wav")),
    "/jobs/rich/files?path=artifacts/outputs/sample_1.png",
    "/jobs/good/code?path=train.py",
    "/jobs/bad/code?against=good",
    "/compare?job=good&job=bad",
    "/compare?job=good&job=one&job=rich",
    "/jobs/one",
    "/computes",
    "/endpoints",
    "/endpoints/empty",
    "/deploy?model=walked:1",
    *(f"/assets/{kind}" for kind in ("models", "data", "environments", "components")),
    *(f"/assets/{kind}" for kind in ("datastores", "states", "schedules")),
    "/assets/models/walked:1",
    "/assets/data/numbers:1",
    "/assets/environments/walked:1",
    "/assets/components/say:1",
    "/assets/datastores/default",
    "/assets/states/rich",
    "/assets/schedules/nightly",
    *(f"/do/{action}?job=good" for action in ("cancel", "restart", "preempt", "tag", "unstar")),
    *(f"/do/{action}?job=good" for action in ("archive", "delete", "register", "note", "release")),
    "/do/archive?job=good&job=bad",
    "/upload",
]
# What is no page, is shown in other tests with a model that answers, or leads elsewhere.
_NO_PAGES = ("/changes", "/find", "/log", "/tail", "/search", "/file", "/files.zip", "/service")
_ELSEWHERE = ("/endpoints/{name}/try", "/sign-out")


@pytest.fixture(scope="module")
def walked(site: Site) -> Iterator[str]:
    """The name of a job that runs. There are also a job of many ranks, and an asset of each
    kind."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 1, 8000, 0, "NONE", ""))
        file.writeframes(bytes(80))
    (site.code / "rich.py").write_text(_RICH.replace("{WAV}", sound.getvalue().hex()))
    (site.code / "nightly.yml").write_text(_SCHEDULE)
    (site.code / "say.yml").write_text(_COMPONENT)
    pattern = ("-m", r"step_time=step (?P<step>\d+) time (?P<value>\S+)", "--metric-rank", "all")
    rich = ("run", "--name", "rich", "-p", 10, "--set", "retry.max_attempts=2", *pattern, "-q")
    live = ("run", "--detach", "--name", "live", *pattern, "-p", 2, "--", "python", "-c", _LIVE)
    for words in (
        (*rich, "--", "python", "rich.py"),
        ("job", "tag", "rich", "mlflow.note.content=# Note\n\n* [x](https://e.org)", "team=a"),
        ("model", "register", "walked", "--job", "good", "--path", "outputs"),
        ("environment", "create", "walked", "--image", "python:3.12"),
        ("component", "create", "-f", "say.yml"),
        ("schedule", "create", "-f", "nightly.yml"),
        ("endpoint", "create", "empty"),
        live,
    ):
        done = site.allranks(*words)
        assert done.returncode == 0, done.stderr
    until(lambda: answer(site.allranks, "job", "show", "live")["status"] == "Running")
    yield "live"
    site.allranks("job", "cancel", "live")
    site.allranks("schedule", "delete", "--yes", "nightly")
    site.allranks("endpoint", "delete", "empty", "--yes")


_LIVE = "import time\nfor n in range(10**6): print('step', n, 'time', n, flush=True); time.sleep(1)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page(site: Site, walked: str, browser: Any, scheme: str) -> None:
    """No error in the console, no failed request, no finding of axe-core, nothing wider than the
    window, at most one button that stands out, and headers at the side of their numbers."""
    found: list[str] = []
    places = [*_PLACES, *(f"/jobs/{walked}{tab}" for tab in _TABS)]
    with watched(browser, color_scheme=scheme, viewport={"width": 1440, "height": 844}) as it:
        it.go(site.link())
        open_requests = _open_requests(it.page)
        for place in places:
            it.go(f"{site.url}/ui{place}")
            if "/metrics" in place or "compare" in place:
                # A chart is drawn when its title is.
                it.page.wait_for_selector(".chart .gtitle, .empty")
            until(lambda: it.page.evaluate("1") and not open_requests)
            found += [f"{place}: {problem}" for problem in problems_of(it.page)]
        it.go(f"{site.url}/ui/")
        for key in ("?", "Control+k"):
            it.page.keyboard.press(key)
            it.page.wait_for_selector("dialog[open]")
            found += [f"after {key}: {problem}" for problem in problems_of(it.page)]
            it.page.keyboard.press("Escape")
        it.page.locator(".open-menu").click()
        found += [f"the menu: {problem}" for problem in _problems_at(it.page, 390)]
        found += it.wrong
    with watched(browser, color_scheme=scheme) as it:
        it.go(f"{site.url}/ui/sign-in?back=%2Fui%2F")
        found += [f"sign-in: {problem}" for problem in problems_of(it.page)]
        found += it.wrong
        it.go(site.link())
        for place in ("/jobs/nosuch", "/nosuch", "/compare?job=good"):
            it.go(f"{site.url}/ui{place}")
            found += [f"{place}: {problem}" for problem in problems_of(it.page)]
    assert not found, "\n".join(found)


def _open_requests(page: Any) -> set[Any]:
    """The requests that the page waits for, at any moment; streams never end."""
    waiting: set[Any] = set()
    streams = re.compile(r"/(changes|tail)\?")
    page.on("request", lambda request: streams.search(request.url) or waiting.add(request))
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: waiting.discard(request))
    page.on("framenavigated", lambda _: waiting.clear())
    return waiting


def test_no_page_is_left_out() -> None:
    walked = [place.partition("?")[0] for place in _PLACES]
    for pattern, _, methods in _PAGES:
        is_page = "GET" in methods and not pattern.endswith((".json", *_NO_PAGES))
        regex = re.sub(r"\{\w+(:path)?\}", lambda m: ".+" if m[1] else "[^/]+", pattern)
        if is_page and pattern not in _ELSEWHERE:
            assert any(re.fullmatch(regex, place) for place in walked), pattern


def problems_of(page: Any) -> list[str]:
    """What is wrong with a page that is open, at each width."""
    page.evaluate(_axe())
    return [f"{width} px: {problem}" for width in _WIDTHS for problem in _problems_at(page, width)]


def _problems_at(page: Any, width: int) -> Iterator[str]:
    page.set_viewport_size({"width": width, "height": 844})
    if page.locator("h1").count() != 1:
        yield "not one h1"
    if page.locator(".primary:visible").count() > 1:
        yield "more than one .primary"
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
        yield f"it is {wide} pixels wide"
    for address in page.evaluate(_OTHER_HOSTS):
        yield f"names another host: {address}"
    for head in page.evaluate(_LEFT_OF_THEIR_NUMBERS):
        yield f"left of its numbers: {head}"
    for each in page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]:
        yield f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}"


def _axe() -> str:
    import axe_playwright_python  # lazy: only for this test

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


# What loads or sends something, and is not of this server.
_OTHER_HOSTS = """() => [
    ...document.querySelectorAll("[src], [action], [formaction], link, use, image")
]
    .map((each) => ["src", "formaction", "action", "href"].map((key) => each.getAttribute(key)))
    .flatMap((addresses) => addresses.filter(Boolean).map((text) => new URL(text, location)))
    .filter((url) => !["data:", "blob:", "about:"].includes(url.protocol))
    .filter((url) => url.origin !== location.origin).map(String)"""

# Headers of columns whose cells stand at the right, but which do not themselves.
_LEFT_OF_THEIR_NUMBERS = """() => [...document.querySelectorAll("table")].flatMap((table) => {
    const heads = [...table.querySelectorAll("thead th")];
    const cells = [...table.querySelectorAll("tbody tr:first-child > *")];
    return heads.filter((head, n) => cells.length === heads.length
        && cells[n].classList.contains("right") && !head.classList.contains("right"))
        .map((head) => head.textContent);
})"""
