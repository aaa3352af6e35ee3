"""Jobs side by side in a real browser: colours, groups, a baseline, lines; all in the address."""

import re

import pytest

from tests.browser.conftest import Site, Watched
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SCRIPT = """\
import sys
lr, seed = float(sys.argv[2]), int(sys.argv[4])
for step in range(4): print(f"step {step} loss {lr + seed / 10 + 1 / (step + 1)}")
"""
_CURVES = """\
[...document.querySelectorAll("#charts .plot")].map(
  (box) => box.data?.map((one) => [one.name, one.line.color, one.y])
)"""
_BOX = "document.querySelector('#charts .plot')"


def _run(site: Site, name: str, lr: float, seed: int) -> None:
    words = ("run", "--name", name, "-q", "-m", r"loss=step (?P<step>\d+) loss (?P<value>\S+)")
    command = ("python", "cmp.py", "--lr", lr, "--seed", seed)
    assert site.allranks(*words, "--", *command).returncode == 0


def test_runs_of_one_configuration(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    file = site.code / "cmp.py"
    file.write_text(_SCRIPT)
    _run(site, "cmp-a", 0.5, 1)
    _run(site, "cmp-b", 0.5, 3)
    file.write_text(_SCRIPT + "# slower\n")
    _run(site, "cmp-c", 1, 1)
    signed_in.go(f"{site.url}/ui/compare?job=cmp-a&job=cmp-b&job=cmp-c")
    page.wait_for_selector("#charts .gtitle")
    names = [[name, colour] for name, colour, _ in page.evaluate(_CURVES)[0]]
    assert names == [["cmp-a", "#0072b2"], ["cmp-b", "#d55e00"], ["cmp-c", "#009e73"]]
    text = page.locator("main").inner_text()
    assert re.search(r"lr\s+0.5\s+0.5\s+1\b", text)
    assert "cmp-a → cmp-c, line by line" in text
    assert page.locator(".diff .added").inner_text() == "+# slower\n"
    assert page.locator(".metrics strong").first.inner_text().startswith("0.85")
    page.get_by_label("runs of one configuration").check()
    page.wait_for_url(re.compile("group=on"))
    page.wait_for_selector("#charts .gtitle")
    until(lambda: page.evaluate(_CURVES)[0])
    curves = {name: values for name, _, values in page.evaluate(_CURVES)[0]}
    assert [*curves][3:] == ["lr=0.5 (2 runs)", "cmp-c"]
    assert curves["lr=0.5 (2 runs)"][0] == pytest.approx(1.7)
    assert curves["lr=0.5 (2 runs), mean + sd"][0] == pytest.approx(1.7 + 0.02**0.5)
    assert "0.95 ± 0.14" in page.locator(".metrics").inner_text()
    page.select_option("select[name=baseline]", "cmp-c")
    page.wait_for_url(re.compile("baseline=cmp-c"))
    page.wait_for_selector("#charts .gtitle")
    until(lambda: page.evaluate(_CURVES)[0])
    assert page.locator(".metrics tbody tr").first.inner_text().split()[1:3] == [
        "cmp-c",
        "baseline",
    ]
    page.evaluate(f"Plotly.relayout({_BOX}, {{'xaxis.range[0]': 1, 'xaxis.range[1]': 2}})")
    page.get_by_role("button", name="cmp-c").click()
    page.wait_for_url(re.compile("range=step.*hide=cmp-c"))
    page.reload()
    page.wait_for_selector("#charts .gtitle")
    until(lambda: page.evaluate(_CURVES)[0])
    assert page.evaluate(f"{_BOX}.layout.xaxis.range") == [1, 2]
    assert page.evaluate(f"{_BOX}.data.find((one) => one.name === 'cmp-c').visible") == "legendonly"
    signed_in.ok()
