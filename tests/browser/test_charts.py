"""Charts in a real browser: what the reader chose stays, and what the points say is shown."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Site, Watched
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_BOX = "document.querySelector('#charts .plot')"
_RANGES = f"[{_BOX}.layout.xaxis.range, {_BOX}.layout.yaxis.range]"
_NEWS = "dispatchEvent(new Event('news'))"


def _drag(page: Any, mode: str = "zoom") -> None:
    """Drag from the middle of a chart to the right and down, as a reader zooms or pans."""
    page.evaluate(f"Plotly.relayout({_BOX}, 'dragmode', '{mode}')")
    # In one step: a chart that is drawn again has another element.
    area = "document.querySelector('#charts .nsewdrag').getBoundingClientRect().toJSON()"
    box = page.evaluate(area)
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 3
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] / 4, y + box["height"] / 4, steps=5)
    page.mouse.up()


def _redrawn(page: Any, act: Any) -> None:
    """Do what draws the chart again, and wait until it is drawn."""
    page.evaluate(f"{_BOX}.once('plotly_afterplot', () => (window.drawn = true), window.drawn = 0)")
    act()
    until(lambda: page.evaluate("window.drawn"))


def test_the_first_chart_does_not_wait_for_the_points_of_the_last(
    site: Site, signed_in: Watched
) -> None:
    page, patterns = signed_in.page, [("-m", rf"m{n}=m{n}=(\S+)") for n in range(5)]
    words = ("run", "--name", "five", "-q", *(word for each in patterns for word in each))
    assert site.allranks(*words, "--", "echo", *(f"m{n}=1" for n in range(5))).returncode == 0
    held: list[Any] = []
    page.route("**/metrics.json*", lambda route: held.append(route))

    def requests() -> int:
        page.evaluate("0")  # events come in calls only
        return len(held)

    signed_in.go(f"{site.url}/ui/jobs/five/metrics")
    until(lambda: requests() == 2)
    held[0].continue_()
    page.wait_for_selector("#charts .sketch, #charts .gtitle")
    until(lambda: requests() == 3)
    for number in range(1, 5):
        until(lambda number=number: requests() > number)
        held[number].continue_()
    until(lambda: page.locator("#charts .gtitle").count() == 5)
    signed_in.ok()


@pytest.mark.parametrize("mode", ["zoom", "pan"])
def test_zoom_and_pan_stay_when_charts_are_drawn_again(
    site: Site, signed_in: Watched, mode: str
) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/good/metrics?find=loss")
    page.wait_for_selector("#charts .gtitle")
    before = page.evaluate(_RANGES)
    _redrawn(page, lambda: _drag(page, mode))
    until(lambda: page.evaluate(_RANGES) != before)
    ranges = page.evaluate(_RANGES)
    for act in (
        lambda: page.evaluate(_NEWS),
        lambda: page.locator("input[name=smooth]").press("ArrowRight"),
        lambda: page.locator("#theme").click(),
    ):
        _redrawn(page, act)
        assert page.evaluate(_RANGES) == ranges
    assert "smooth=0.01" in page.url
    signed_in.ok()


def test_a_zoom_stays_while_points_arrive(site: Site, signed_in: Watched, running: str) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/{running}/metrics?find=loss")
    length = f"{_BOX}?.data?.[0]?.x.length ?? 0"
    until(lambda: page.evaluate(length) > 5)
    before = page.evaluate(_RANGES)
    _redrawn(page, lambda: _drag(page))
    until(lambda: page.evaluate(_RANGES)[0][0] > before[0][0])
    ranges, seen = page.evaluate(_RANGES), page.evaluate(length)
    until(lambda: page.evaluate(length) > seen + 20)
    assert page.evaluate(_RANGES) == ranges
    signed_in.ok()


_ODD = """\
import math, time
for n in range(60_000):
    if n % 200 == 0: time.sleep(0.01)
    value = 50.0 if n % 3000 == 7 else math.nan if n % 3000 == 11 else math.sin(n / 300)
    print(f"odd {n} {value}")
"""
_SPIKES = f"{_BOX}.data[0].y.filter((y) => y === 50).length"
_MARKS = f"{_BOX}.data[1].text"


def _saved(page: Any, title: str) -> list[list[str]]:
    with page.expect_download() as download:
        page.locator("#charts .chart").first.hover()
        page.locator(f"#charts [data-title='{title}']").first.click()
    return [*csv.reader(Path(download.value.path()).read_text().splitlines())]


def test_spikes_and_what_is_no_number_are_seen_and_saved(site: Site, signed_in: Watched) -> None:
    words = ("-m", r"odd=odd (?P<step>\d+) (?P<value>\S+)", "--", "python", "-c", _ODD)
    assert site.allranks("run", "--name", "odd", "-q", *words).returncode == 0
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/odd/metrics")
    page.wait_for_selector("#charts .gtitle")
    assert page.evaluate(_SPIKES) == 20
    marked = [f"NaN at step {n}" for n in range(11, 60_000, 3000)]
    assert page.evaluate(_MARKS) == marked
    drawn = _saved(page, "Save what is drawn as CSV")
    assert 1000 < len(drawn) < 5000
    raw = _saved(page, "Save the points as CSV")
    assert raw[0] == ["metric", "job", "attempt", "node", "rank", "step", "time", "value"]
    assert len(raw) == 60_001
    assert raw[8][:6] == ["odd", "odd", "1", "0", "0", "7"]
    assert [raw[8][7], raw[12][7]] == ["50", "NaN"]
    span = "{'xaxis.range[0]': 5900, 'xaxis.range[1]': 21100}"
    page.evaluate(f"Plotly.relayout({_BOX}, {span})")
    inside = f"{_BOX}.data[0].x.filter((x) => x >= 5900 && x <= 21100).length"
    until(lambda: page.evaluate(inside) > 1500)
    assert page.evaluate(_SPIKES) == 20
    assert page.evaluate(_MARKS) == marked
    steps = [int(row[5]) for row in _saved(page, "Save the points as CSV")[1:]]
    assert {*range(5900, 21_101)} <= {*steps}
    assert len(steps) < 40_000
    signed_in.ok()


_SLOW = """\
import os
rank = int(os.environ["RANK"])
for step in range(40):
    late = rank == 4 and step >= 10
    value = float("nan") if rank == 7 and step == 20 else 0.5 + late + rank / 1000
    print(f"step {step} {value}")
"""


@pytest.fixture(scope="module")
def slow(site: Site) -> str:
    """The name of a job of ten ranks of which the fourth is late from step 10."""
    pattern = ("-m", r"step_time=step (?P<step>\d+) (?P<value>\S+)", "--metric-rank", "all")
    words = ("run", "--name", "slow", "-p", 10, *pattern, "-q", "--", "python", "-c", _SLOW)
    assert site.allranks(*words).returncode == 0
    return "slow"


def test_what_the_legend_hides_stays_hidden(site: Site, slow: str, signed_in: Watched) -> None:
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/{slow}/metrics?rank=each")
    page.wait_for_selector("#charts .gtitle")
    page.get_by_role("button", name="rank 1", exact=True).click()
    _redrawn(page, lambda: page.evaluate(_NEWS))
    assert page.evaluate(f"{_BOX}.data[1].visible") == "legendonly"
    assert {row[4] for row in _saved(page, "Save the points as CSV")[1:]} == {*"023456789"}
    signed_in.ok()


def test_a_range_has_a_gap_where_its_curves_have_one(site: Site, signed_in: Watched) -> None:
    call = "area([0, 1, 2, 3], [1, 1, null, 3], [2, 2, null, 4], '#0072b2')"
    found = signed_in.page.evaluate(f"import('/ui/static/plot.js').then(({{ area }}) => {call})")
    assert found["x"] == [0, 1, 1, 0, None, 3, 3, None]
    assert found["y"] == [2, 2, 1, 1, None, 4, 3, None]


_MEAN = "path[fill=none][stroke='#0072b2'][stroke-width='2']"
_PLACES = """([curve, mark]) => [document.querySelector("#charts .chart"), ...[curve, mark].map(
    (name) => document.querySelector(`#charts ${name}`))].map((node) => {
        const { left, right, top, bottom } = node.getBoundingClientRect();
        return [left, right, top, bottom];
    })"""


@pytest.mark.parametrize("query", ["", "?x=time", "?log=on"])
def test_a_sketch_stands_where_the_chart_will(
    site: Site, slow: str, signed_in: Watched, query: str
) -> None:
    page = signed_in.page
    held: list[Any] = []
    page.route("**/ui/plotly.js", lambda route: held.append(route))
    signed_in.go(f"{site.url}/ui/jobs/{slow}/metrics{query}")
    page.wait_for_selector("#charts .sketch")
    marked = page.locator("#charts .sketch [stroke-width='3']")
    assert marked.count() == 1
    before = page.evaluate(_PLACES, [f".sketch {_MEAN}", ".sketch [stroke-width='3']"])
    page.get_by_role("button", name="rank 4", exact=True).click()
    until(lambda: held)
    held[0].continue_()
    page.wait_for_selector("#charts .gtitle")
    until(lambda: not page.locator("#charts .sketch").count())
    assert page.evaluate(f"{_BOX}.data[4].visible") == "legendonly"
    _redrawn(page, page.get_by_role("button", name="rank 4", exact=True).click)
    curve = ".scatterlayer .js-line[style*='stroke-width: 2px']"
    after = page.evaluate(_PLACES, [curve, ".point"])
    assert before[0] == after[0]
    for one, other in zip(before[1:], after[1:], strict=True):
        assert other == pytest.approx(one, abs=10)
    signed_in.ok()


def test_raw_values_outliers_and_groups(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    words = "for n in range(1, 60):\n    print('n', n, 'v', 1e6 if n == 30 else n)"
    (site.code / "spike.py").write_text(words)
    metrics = ("-m", r"spike=n (?P<step>\d+) v (?P<value>\S+)", "-m", r"val/n=n (\d+) v")
    run = ("run", "--name", "spike", "-q", *metrics, "--", "python", "spike.py")
    assert site.allranks(*run).returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/spike/metrics?smooth=0.5&usual=on")
    page.wait_for_selector("#charts .gtitle")
    raw, smooth = (
        page.evaluate(f"{_BOX}.data.map((each) => each.y.length)"),
        f"{_BOX}.data[1].y[29]",
    )
    assert raw == [59, 59]
    assert page.evaluate(f"{_BOX}.data[0].y[29]") == 1e6
    assert page.evaluate(smooth) < 1e6
    assert page.evaluate(f"{_BOX}.layout.yaxis.range[1]") < 100
    page.locator("summary", has_text="val").click()
    assert not page.get_by_role("figure", name="Chart of val/n").is_visible()
    page.get_by_label("ignore outliers").uncheck()
    page.get_by_label("log x").check()
    until(lambda: page.evaluate(f"{_BOX}.layout.xaxis.type") == "log")
    assert page.evaluate(f"{_BOX}.layout.yaxis.range[1]") > 1e6
    signed_in.ok()


def test_many_ranks(site: Site, slow: str, signed_in: Watched) -> None:
    """Their mean and range, who differs by name, each on demand, and a table that leads on."""
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/{slow}/metrics")
    page.wait_for_selector("#charts .gtitle")
    names = f"{_BOX}.data.map((each) => each.name)"
    assert page.evaluate(names) == [
        "least",
        "greatest",
        "range",
        "mean of 10 ranks, and range",
        "rank 4",
        "NaN",
    ]
    assert page.evaluate(f"{_BOX}.data[5].text") == ["NaN at step 20, rank 7"]
    legend = page.locator("#charts .legend").first
    assert legend.inner_text().split("\n")[0] == "mean of 10 ranks, and range"
    least, greatest = page.evaluate(f"[{_BOX}.data[0].y[30], {_BOX}.data[1].y[30]]")
    assert (least, greatest) == (0.5, 1.504)
    assert page.evaluate(f"{_BOX}._fullData[5].marker.color") == "rgb(179, 21, 31)"
    page.select_option("select[name=rank]", "each")
    until(lambda: len(page.evaluate(f"{_BOX}.data")) == 11)
    assert "rank=each" in page.url
    page.get_by_role("link", name="Ranks", exact=True).click()
    row = page.locator("tbody tr").first
    assert row.locator("td").first.inner_text() == "rank 4"
    assert "30 steps from 10" in row.inner_text()
    box = page.locator("#heat").bounding_box()
    until(lambda: page.evaluate("document.getElementById('heat').width > 400"))
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 8 + 4.5 * 22)
    until(lambda: "rank 4, node 0, step" in page.locator("#heat-note").inner_text())
    page.get_by_role("button", name="Zoom in").click()
    left = box["x"] + 66

    def begins_at_ten() -> bool:
        """The first column that is shown, once it has come."""
        for x in (left, left + 1):
            page.mouse.move(x, box["y"] + 50)
        return "step 10:" in page.locator("#heat-note").inner_text()

    until(begins_at_ten)
    row.get_by_role("link", name="log").click()
    page.wait_for_url(re.compile(r"logs\?rank=4&attempt=1"))
    signed_in.ok()


def test_pointing_at_a_chart_styles_only_its_own_elements(
    site: Site, slow: str, signed_in: Watched
) -> None:
    page, events = signed_in.page, list[Any]()
    signed_in.go(f"{site.url}/ui/jobs/{slow}/metrics")
    page.wait_for_selector("#charts .gtitle")
    protocol = page.context.new_cdp_session(page)
    protocol.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    protocol.on("Tracing.tracingComplete", lambda _: events.append({"name": "end"}))
    protocol.send("Tracing.start", {"categories": "devtools.timeline"})
    page.locator("#charts .nsewdrag").first.hover()
    page.wait_for_selector("#charts .hoverlayer .legendtext")
    protocol.send("Tracing.end")

    def names() -> list[str]:
        page.evaluate("0")  # events come in calls only
        return [event["name"] for event in events]

    until(lambda: "end" in names())
    styled = [event for event in events if event["name"] == "UpdateLayoutTree"]
    counts = [event["args"].get("elementCount", 0) for event in styled]
    assert counts
    assert max(counts) < 0.5 * page.evaluate("document.querySelectorAll('*').length")


def test_of_many_curves_the_nearest_one_says_its_value(site: Site, signed_in: Watched) -> None:
    """The values of 512 ranks in one label take half a minute to draw."""
    page = signed_in.page
    words = ("run", "--name", "crowd", "-p", 21, "-m", r"n=n (\d+)", "--metric-rank", "all", "-q")
    code = "for n in 1 2 3; do echo n $((n * RANK)); done"
    assert site.allranks(*words, "--", "sh", "-c", code).returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/crowd/metrics?rank=each")
    page.wait_for_selector("#charts .gtitle")
    page.locator("#charts .nsewdrag").first.hover()
    page.wait_for_selector("#charts .hoverlayer text")
    assert page.locator("#charts .hoverlayer .hovertext").count() == 1
    assert "rank " in page.locator("#charts .hoverlayer .hovertext").text_content()
    signed_in.ok()


def test_ranks_that_are_all_alike(site: Site, signed_in: Watched) -> None:
    """Their heat map has one colour."""
    words = ("run", "--name", "alike", "-p", 2, "-m", r"same=same (\d)", "--metric-rank", "all")
    assert site.allranks(*words, "-q", "--", "echo", "same 1").returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/alike/ranks")
    signed_in.page.wait_for_selector("#heat[width]")
    signed_in.ok()


def test_ranks_whose_metrics_are_of_the_first_one_only(site: Site, signed_in: Watched) -> None:
    """The page says so, and how to get all."""
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/good/ranks")
    assert "--metric-rank all" in page.locator("main").inner_text()
    signed_in.ok()


def test_no_button_of_a_chart_leaves_the_house(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    page.on("popup", lambda each: signed_in.wrong.append(f"a window opens: {each.url}"))
    signed_in.go(f"{site.url}/ui/jobs/good/metrics")
    page.wait_for_selector("#charts .gtitle")
    buttons = page.locator("#charts .plot").first.locator(".modebar-btn")
    titles = [each.get_attribute("data-title") for each in buttons.all()]
    assert len(titles) == 8, titles
    assert not [title for title in titles if "hare" in title or "loud" in title]
    for each in buttons.all():
        each.dispatch_event("click")
    signed_in.ok()
