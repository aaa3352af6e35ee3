"""Charts in a real browser: what the reader chose stays, and what the points say is shown."""

from typing import Any

import pytest

from tests.browser.conftest import Site, Watched
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_BOX = "document.querySelector('#charts .chart')"
_RANGES = f"[{_BOX}.layout.xaxis.range, {_BOX}.layout.yaxis.range]"
_NEWS = "dispatchEvent(new Event('news'))"


def _drag(page: Any, mode: str = "zoom") -> None:
    """Drag from the middle of a chart to the right and down, as a reader zooms or pans."""
    page.evaluate(f"Plotly.relayout({_BOX}, 'dragmode', '{mode}')")
    box = page.locator("#charts .chart .nsewdrag").first.bounding_box()
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
