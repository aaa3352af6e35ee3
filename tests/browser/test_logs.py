"""Logs in a real browser: all ranks by time, equal lines once, places that can be linked."""

import re

import pytest

from tests.browser.conftest import Site, Watched
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Ranks print in turns: each waits for the file of the one before.
TURNS = """\
import os, pathlib, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
turns = pathlib.Path(os.environ["TURNS"])
while not (turns / "begin").exists():
    time.sleep(0.01)
print("epoch 0", flush=True)
for turn in range(3):
    while not (turns / f"{turn * world + rank}").exists():
        time.sleep(0.01)
    print(f"turn {turn} of {rank}", flush=True)
    time.sleep(0.3)
    (turns / f"{turn * world + rank + 1}").touch()
    if turn == 1 and rank == 2:
        print("\\x1b[1;31mValueError:\\x1b[0m <b>early</b>", flush=True)
print(("padding" * 30 + "\\n") * 3000 if rank == 0 else "", end="")
print("ValueError: late", flush=True)
"""


@pytest.mark.end_to_end
def test_all_ranks_by_time(site: Site, signed_in: Watched) -> None:
    page, turns = signed_in.page, site.code / "turns"
    turns.mkdir()
    (site.code / "turns.py").write_text(TURNS)
    words = ("run", "--detach", "--name", "turns", "-n", 3, "--env", f"TURNS={turns}")
    assert site.allranks(*words, "--", "python", "turns.py").returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/turns/logs")
    page.wait_for_selector("#log .empty")
    assert re.search("Waiting|appears here", page.locator("#log").inner_text())
    (turns / "begin").touch()
    page.wait_for_selector("#log :text('epoch 0')")
    (turns / "0").touch()
    order = [f"[{rank}] turn {turn} of {rank}" for turn in range(3) for rank in range(3)]
    shown = "document.getElementById('log').innerText.split('\\n').filter((l) => /turn/.test(l))"
    until(lambda: page.evaluate(shown) == order)
    site.allranks("job", "wait", "turns")
    signed_in.go(f"{site.url}/ui/jobs/turns/logs")
    page.wait_for_selector("#log div")
    page.get_by_role("button", name="First error").click()
    page.wait_for_url(re.compile("at=2%3A"))
    line = page.locator("#log [aria-current]")
    assert line.inner_text() == "[2] ValueError: <b>early</b>"
    assert line.locator(".ansi-bold.ansi-colour-1").inner_text() == "ValueError:"
    around = page.evaluate(shown)
    assert around == order[: len(around)]
    assert page.locator("#log div", has_text="epoch 0").all_inner_texts() == ["[ranks 0–2] epoch 0"]
    page.locator("#fold").uncheck()
    until(lambda: page.locator("#log div", has_text="epoch 0").count() == 3)
    # What comes after is read when it is scrolled to; the last lines are at its end.
    down = "document.getElementById('log').scrollTop = 1e9"
    until(lambda: page.evaluate(down) and page.locator("#log :text('late')").count() == 3)
    signed_in.ok()


def test_a_match_leads_to_its_line(site: Site, signed_in: Watched) -> None:
    page = signed_in.page
    script = (
        "print('ü first'); print('x' * 99 + '\\n' * 1, end=''); [print(n) for n in range(90000)]"
    )
    words = ("run", "--name", "long-log", "-q", "--", "python", "-c", script)
    assert site.allranks(*words).returncode == 0
    signed_in.go(f"{site.url}/ui/jobs/long-log/logs?rank=0&text=x")
    page.fill("#search input[name=text]", "40000")
    page.get_by_role("button", name="Find").click()
    page.locator("#matches a").click()
    page.wait_for_url(re.compile("at="))
    page.wait_for_selector("#log [aria-current]")
    assert page.locator("#log [aria-current]").inner_text() == "40000"
    assert page.evaluate("document.getElementById('log').innerText.includes('\\n40001\\n')")
    top = "document.getElementById('log').scrollTop = 0"
    until(lambda: page.evaluate(top) == 0 and page.locator("#log :text('ü first')").count() == 1)
    signed_in.ok()
