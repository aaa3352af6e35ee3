"""The time axis of a job in a real browser: marks that lead on, and one zoom for all lanes."""

import re

import pytest

from tests.browser.conftest import Site, Watched
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SCRIPT = """\
import os, pathlib, time
state = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"]) / "step"
begin = int(state.read_text()) if state.exists() else 0
for step in range(begin, 12):
    print(f"step {step} loss {1 / (step + 1)} left {12 - step}", flush=True)
    state.write_text(str(step))
    time.sleep(0.1)
    if step == 5 and not begin: raise ValueError("a link is down")
"""
_VIEWS = """\
new Set([...document.querySelectorAll("#timeline .lane")].map((lane) => {
  const [x, , width] = lane.getAttribute("viewBox").split(" ");
  return `${x} ${width}`;
})).size
"""
_X = "Number(document.querySelector('#timeline .lane').getAttribute('viewBox').split(' ')[2])"
_RANGES = """\
[...document.querySelectorAll(".plot.ready")].map((box) => String(box.layout.xaxis.range))
"""
# A line has no width, so that the driver takes it for hidden.
_FAILURE = """\
(() => {
  const mark = document.querySelector("#timeline .mark.failure");
  const box = mark.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()
"""
_WHOLE = "Plotly.relayout(document.querySelector('#charts .plot'), 'xaxis.autorange', true)"


def test_one_time_axis(site: Site, signed_in: Watched) -> None:
    words = ("--name", "axis", "--set", "retry.max_attempts=2", "-q")
    pattern = ("-m", r"loss=step (?P<step>\d+) loss (?P<value>\S+)", "-m", r"left=left (\S+)")
    done = site.allranks("run", *words, *pattern, "--", "python", "-c", _SCRIPT)
    assert done.returncode == 0, done.stderr
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/axis")
    page.wait_for_selector("#timeline .curve", state="attached")
    names = page.locator("#timeline .lane-name").all_inner_texts()
    assert [name.split()[0] for name in names][:5] == [
        "Phases",
        "Attempts",
        "Checkpoints",
        "Failures",
        "Restarts",
    ]
    assert {"loss", "left"} <= {name.split()[0] for name in names}
    box = page.locator("#timeline .tall").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=4)
    page.mouse.up()
    until(lambda: abs(page.evaluate(_X) - 250) < 5)
    assert page.evaluate(_VIEWS) == 1
    assert "range=time" in page.url
    page.get_by_role("link", name="Charts").click()
    page.wait_for_url(re.compile("metrics.x=time&range=time"))
    page.wait_for_selector("#charts .gtitle")
    until(lambda: len(page.evaluate(_RANGES)) >= 2)
    assert len({*page.evaluate(_RANGES)}) == 1
    page.evaluate(_WHOLE)
    until(lambda: "range" not in page.url)
    signed_in.go(f"{site.url}/ui/jobs/axis")
    page.wait_for_selector("#timeline .mark.failure", state="attached")
    page.mouse.click(*page.evaluate(_FAILURE))
    page.wait_for_url(re.compile(r"logs\?rank=0&attempt=1"))
    signed_in.ok()
