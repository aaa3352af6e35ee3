"""A sweep's drawings in a real browser."""

import pytest

from tests.browser.conftest import Site, Watched
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SCRIPT = "import sys; x, y = map(float, sys.argv[1:]); print('loss:', (x - 0.5) ** 2 + y)"


def test_brushes_and_contours(site: Site, signed_in: Watched) -> None:
    space = ("--sweep", "x=uniform(0,1)", "--sweep", "y=uniform(0,1)", "--trials", 6)
    goal = ("--minimize", "loss", "-m", r"loss=loss: (\S+)", "--concurrent", 6, "-q")
    command = ("python", "-c", _SCRIPT, "${{search_space.x}}", "${{search_space.y}}")
    done = site.allranks("run", "--name", "brush", *space, *goal, "--", *command)
    assert done.returncode == 0, done.stderr
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/brush")
    page.wait_for_selector(".parallel svg .axis", state="attached")
    assert page.locator(".parallel svg > path").count() == 6
    assert "--sweep 'x=uniform(" in page.locator("main").inner_text()
    # The least loss of all: a drag over the lower half of the last axis keeps it.
    page.locator(".parallel").scroll_into_view_if_needed()
    box = page.locator(".parallel .hit").last.bounding_box()
    page.mouse.move(box["x"] + 14, box["y"] + box["height"] - 1)
    page.mouse.down()
    page.mouse.move(box["x"] + 14, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    shown = page.locator("tr[data-trial]:visible")
    until(lambda: 0 < shown.count() < 6)
    assert page.locator("tr.best").is_visible()
    assert page.locator(".parallel path.off").count() == 6 - shown.count()
    page.locator(".parallel g[role=slider]").last.press("Escape")
    until(lambda: shown.count() == 6)
    page.locator(".parallel g[role=slider]").last.press("ArrowUp")
    until(lambda: shown.count() < 6)
    slider = page.locator(".parallel g[role=slider]").last
    assert slider.get_attribute("aria-valuetext").startswith("from")
    page.locator(".contour").scroll_into_view_if_needed()
    canvas = page.locator(".contour canvas").bounding_box()
    page.mouse.move(canvas["x"] + canvas["width"] / 2, canvas["y"] + 100)
    until(lambda: page.locator(".contour [role=status]").inner_text())
    signed_in.ok()
