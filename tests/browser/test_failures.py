"""From a failed pipeline to the rank that failed, and from a hang to the stack of the culprit."""

import pytest

from tests.browser.conftest import Site, Watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PIPELINE = """\
type: pipeline
jobs:
  first: {command: echo fine}
  second:
    type: pipeline
    jobs:
      inner:
        command: echo sums differ; echo a lot; exit 3
"""
HANG = """\
import os, time
def load():
    time.sleep(1000)
def gather():
    time.sleep(1000)
load() if os.environ["RANK"] == "1" else gather()
"""


def test_a_failed_step_and_a_hang(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    (site.code / "failing.yml").write_text(PIPELINE)
    words = ("job", "create", "-f", "failing.yml", "--name", "failing", "--stream", "-q")
    done = site.allranks(*words)
    assert "first | fine" in done.stdout, "names in a pipe too"
    signed_in.go(f"{site.url}/ui/jobs/failing")
    panel = page.locator("section", has_text="The last lines of rank 0")
    assert "step second, step inner" in panel.inner_text()
    assert "sums differ\na lot" in panel.locator("pre").inner_text()
    why = page.get_by_role("region", name="Why each step").inner_text()
    assert "not reused: " in why
    panel.get_by_role("link", name="log of rank 0").click()
    page.wait_for_selector("#log :text('sums differ')")

    (site.code / "hang.py").write_text(HANG)
    words = ("run", "--name", "hangs", "-n", 3, "--hang-timeout", 3, "-q", "--", "python")
    assert site.allranks(*words, "hang.py").returncode == 1
    signed_in.go(f"{site.url}/ui/jobs/hangs")
    assert "in load" in page.locator(".failed details[open] pre").inner_text()
    page.get_by_role("link", name="Stacks of all ranks").click()
    assert "in load" in page.locator("details[open] pre").inner_text()
    signed_in.ok()
