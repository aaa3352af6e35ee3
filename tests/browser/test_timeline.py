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


_APART = """\
import os
rank = int(os.environ["RANK"])
for step in range(4):
    print(f"step {step} apart {step * 10 if rank else -step} same {step * 5e307}")
"""


def test_the_row_of_several_ranks_draws_their_mean(site: Site, signed_in: Watched) -> None:
    names = ("apart", "same")
    patterns = [("-m", rf"{name}=step (?P<step>\d+).*{name} (?P<value>\S+)") for name in names]
    words = ("-p", 2, "--metric-rank", "all", *(word for each in patterns for word in each))
    done = site.allranks("run", "--name", "apart", "-q", *words, "--", "python", "-c", _APART)
    assert done.returncode == 0, done.stderr
    page = signed_in.page
    signed_in.go(f"{site.url}/ui/jobs/apart")
    for name in names:
        row = page.locator("#metrics tr").filter(has_text=name)
        assert "mean of 2 ranks" in row.inner_text()
        curve = row.locator(".spark path")
        curve.wait_for(state="attached")
        heights = [float(y) for y in re.findall(r" ([\d.]+)", curve.get_attribute("d"))]
        # The first rank goes down; their mean goes up, which is a smaller y.
        assert heights == sorted(heights, reverse=True)
        assert (heights[0], heights[-1]) == (24, 2)
    for other, count in (("apart", 1), ("one", 0)):
        signed_in.go(f"{site.url}/ui/compare?job=good&job={other}")
        assert page.get_by_text("the values of the lowest one").count() == count
    signed_in.ok()
