"""Ten thousand metrics, numbers that are none, two thousand ranks, names in every script."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from allranks.settings import Home
from allranks.store.database import open_database
from allranks.store.metric_points import Point, Points
from tests.browser.conftest import Site, bytes_sent, watched
from tests.support import answer, command_line, leave_nothing, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SCRIPTS = ["損失", "потеря", "الخسارة", "हानि", "απώλεια", "🔥 loss", "a\u0301e\u0301", "x" * 240]
# Names, tags and notes without a place to break, in several letters.
_W, _J, _A = 240 * "W", 250 * "損失", 70 * "الخسارة"
_TAGS = ("--tag", f"a={_W}W", "--tag", f"{_J}={_A}", "--tag", f"mlflow.note.content={_J}")
_LONG = (
    ("--name", f"n{_W}", "--experiment", 200 * "e", "-m", rf"{200 * 'p'}=loss (\d+)", "-n", 2),
    ("--name", "tagged", *_TAGS, "--display-name", _J, "-m", r"loss=loss (\d+)"),
)
_LONG_DATA = (240 * "b", "--path", "long", "--label", 240 * "l")
_PRINTS = "print('loss 1')"
_LONG_PLACES = [
    "/",
    *(
        f"/jobs/{name}{tab}"
        for name in (f"n{_W}", "tagged")
        for tab in ("", "/metrics", "/details")
    ),
    f"/compare?job=n{_W}&job=tagged",
    *(f"/do/{action}?job=n{_W}" for action in ("tag", "delete", "restart")),
    "/do/tag?job=tagged",
    "/assets/data",
    f"/assets/data/{240 * 'b'}",
]


@pytest.fixture(scope="module")
def extremes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Jobs whose record was made larger while the server was stopped."""
    folder = tmp_path_factory.mktemp("extremes")
    home, code = folder / "home", folder / "code"
    code.mkdir()
    (code / "long").touch()
    allranks = command_line(home, code)
    try:
        for name in ("metrics", "ranks"):
            assert allranks("run", "--name", name, "-q", "--", "true").returncode == 0
        wide = ("run", "--name", "wide-" + 30 * "x", "-n", 24, "-p", 8, "-q")
        assert allranks(*wide, "--", "true").returncode == 0
        for words in _LONG:
            assert allranks("run", *words, "-q", "--", "python", "-c", _PRINTS).returncode == 0
        assert allranks("data", "create", *_LONG_DATA).returncode == 0
        assert allranks("server", "stop").returncode == 0
        _enlarge(home)
        assert allranks("server", "start").returncode == 0
        yield Site(allranks, home, code, answer(allranks, "server", "status")["url"])
    finally:
        leave_nothing(home)


def _enlarge(home: Path) -> None:
    engine = open_database(Home(home).database)
    now = time.time()
    odd = [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 5e-324, 0.0]
    with closing(sqlite3.connect(home / "allranks.db")) as database, database:
        ((ident, _),) = database.execute("SELECT id, name FROM jobs WHERE name = 'metrics'")
        points = [(f"m{number:05}", Point(0, now, number)) for number in range(10_000)]
        points += [("odd", Point(step, now + step, value)) for step, value in enumerate(odd)]
        points += [(name, Point(step, now, step)) for name in _SCRIPTS for step in range(3)]
        ((plan,),) = database.execute("SELECT plan FROM jobs WHERE name = 'ranks'")
        large = json.loads(plan)
        large["task"] |= {"nodes": 250, "procs": 8}
        database.execute("UPDATE jobs SET plan = ? WHERE name = 'ranks'", (json.dumps(large),))
    Points(engine).add_metrics(ident, 1, points)
    engine.dispose()


def test_ten_thousand_metrics(extremes: Site, browser: Any) -> None:
    with watched(browser) as it:
        it.go(extremes.link())
        it.go(f"{extremes.url}/ui/jobs/metrics")
        assert "more metrics" in it.page.locator("#metrics").inner_text()
        it.go(f"{extremes.url}/ui/jobs/metrics/metrics")
        it.page.wait_for_selector(".chart .gtitle")
        assert it.page.locator("#charts .chart").count() == 200
        for name in ("odd", *_SCRIPTS):
            it.page.fill("input[name=find]", name)
            until(lambda: it.page.locator("#charts .chart .gtitle").count() == 1)
            title = it.page.locator("#charts .chart .gtitle").text_content()
            assert title == name
        it.ok()


def test_two_thousand_ranks(extremes: Site, browser: Any) -> None:
    with watched(browser) as it:
        it.go(extremes.link())
        it.go(f"{extremes.url}/ui/jobs/ranks")
        assert "250 × 8 ranks" in it.page.locator("#head").inner_text()
        it.go(f"{extremes.url}/ui/jobs/ranks/logs?rank=1999")
        assert it.page.locator("select[name=rank] option").count() == 2001
        it.ok()


def test_many_nodes_are_shown_on_demand(extremes: Site, browser: Any) -> None:
    """A page is 60 kB, however many nodes and ranks the job has."""
    job = f"{extremes.url}/ui/jobs/wide-{30 * 'x'}"
    with watched(browser) as it:
        it.go(extremes.link())
        assert bytes_sent(it, job) <= 60_000
        assert it.page.locator("#nodes .node").count() == 16
        it.page.get_by_role("link", name="All 24 nodes").click()
        it.page.wait_for_url("**?nodes=all#nodes")
        assert it.page.locator("#nodes .ranks a").count() == 192
        assert bytes_sent(it, f"{job}/details") <= 60_000
        it.page.get_by_role("link", name="Variables of 192 ranks").click()
        it.page.wait_for_url("**ranks=0#ranks")
        assert re.search(r"GROUP_RANK\s+\{node\}", it.page.locator("#ranks").inner_text())
        it.page.get_by_role("link", name="Next").click()
        it.page.wait_for_url("**ranks=64#ranks")
        rows = it.page.get_by_role("region", name="Ranks", exact=True).locator("tbody tr")
        assert (rows.count(), rows.first.inner_text().split()[:2]) == (64, ["64", "8"])
        it.ok()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_long_names_break_no_layout(extremes: Site, browser: Any, scheme: str) -> None:
    """No page is wider than the window, and the list shows its columns whole; a name that is cut is
    whole while it has the focus."""
    wide: list[str] = []
    with watched(browser, color_scheme=scheme) as it:
        page = it.page
        it.go(extremes.link())
        for place in _LONG_PLACES:
            it.go(f"{extremes.url}/ui{place}")
            for width in (1440, 1024, 390):
                page.set_viewport_size({"width": width, "height": 844})
                if (size := page.evaluate("document.documentElement.scrollWidth")) > width:
                    wide.append(f"{place[:40]}: {size} px of {width}")
                if place == "/":
                    table = page.locator("#list .scroll")
                    assert table.evaluate("(it) => it.scrollWidth <= it.clientWidth"), width
                    right = "(it) => it.getBoundingClientRect().right"
                    row = page.locator("#list tr", has_text="tagged")
                    assert row.locator(".status").evaluate(right) <= width
                    name = row.locator(".tag").first
                    assert name.evaluate("(it) => it.scrollWidth > it.clientWidth"), width
                    name.focus()
                    page.keyboard.press("Shift+Tab")
                    page.keyboard.press("Tab")
                    assert name.evaluate("(it) => it.scrollWidth <= it.clientWidth"), width
                    page.locator("h1").click()
        it.go(f"{extremes.url}/ui/jobs/tagged")
        assert _J in page.locator("#head").inner_text(), "the display name"
        assert not wide, "\n".join(wide)
        it.ok()
