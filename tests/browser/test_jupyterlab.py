"""A job followed in a real JupyterLab, looked at in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import watched
from tests.frameworks.environments import ROOT
from tests.frameworks.environments import environment as frameworks
from tests.support import Allranks, environment, until

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(600)]

CELLS = [
    "from allranks import Client, command\n"
    "job = Client().jobs.create_or_update(command(command='python -u train.py', code='.',\n"
    "    metrics={'loss<b>': r'loss (\\S+)'}))\n"
    "job.watch(every=0.3)",
    "job",
]
# It ends when the test says so.
TRAIN = """\
import itertools, os, sys, time
for n in itertools.count():
    print('loss', 1 / (n + 1), '<b>bold</b>')
    if os.path.exists(sys.argv[1]) and n > 20:
        break
    time.sleep(0.1)
"""


@pytest.fixture
def lab(home: Path, allranks: Allranks, code: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab in the folder of the code."""
    runtime = tmp_path / "runtime"
    env = environment(home)
    # By the tests' Python: that of the kernel has allranks only by its variables.
    assert allranks("server", "start").returncode == 0
    # The kernel is that environment's; allranks and its dependencies are those of the tests.
    places = (str(ROOT / "src"), sysconfig.get_path("purelib"), env.get("PYTHONPATH", ""))
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, places)), "HOME": str(tmp_path)}
    env |= {"JUPYTER_RUNTIME_DIR": str(runtime)}
    argv = [frameworks("notebook") / "bin" / "jupyter-lab", "--no-browser", "--allow-root"]
    argv += ["--ServerApp.port=0", "--IdentityProvider.token=t0ken", "--LabApp.news_url="]
    with (tmp_path / "lab.log").open("wb") as log:
        lab = subprocess.Popen(argv, env=env, cwd=code, stdout=log, stderr=log)
    try:
        until(lambda: [*runtime.glob("jpserver-*.json")], seconds=60)
        (told,) = runtime.glob("jpserver-*.json")
        yield f"{json.loads(told.read_text())['url']}lab/tree/a.ipynb?token=t0ken"
    finally:
        lab.terminate()
        try:
            lab.wait(30)
        except subprocess.TimeoutExpired:  # it waits for its kernel, which ends with it
            lab.kill()
            lab.wait()


def run_all(page: Any) -> bool:
    """Choose Run All Cells. Whether it was taken: while JupyterLab still loads it does nothing, and
    a cell that was taken has a star or a number at once."""
    page.keyboard.press("Escape")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    taken = page.locator(".jp-InputPrompt").filter(has_text=re.compile(r"\[[*\d]"))
    from playwright.sync_api import TimeoutError  # lazy: only for these tests

    try:
        taken.first.wait_for(timeout=10_000)
    except TimeoutError:
        return False
    return True


def test_a_job_in_jupyterlab(lab: str, browser: Any, code: Path, tmp_path: Path) -> None:
    end = tmp_path / "end"
    train = TRAIN.replace("sys.argv[1]", repr(str(end)))
    (code / "train.py").write_text(train)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [
        {"cell_type": "code", "id": f"c{n}", "source": each, "metadata": {}, "outputs": []}
        | {"execution_count": None}
        for n, each in enumerate(CELLS)
    ]
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
    (code / "a.ipynb").write_text(json.dumps(book))
    with watched(browser) as seen:
        page = seen.page
        seen.go(lab)
        page.locator(".jp-Notebook .jp-CodeCell").nth(1).wait_for(timeout=60_000)
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=60_000)
        until(lambda: run_all(page), seconds=60)
        cards = page.locator(".allranks-job")
        cards.first.get_by_text("Running").wait_for(timeout=60_000)
        chart = cards.first.locator("svg")
        chart.wait_for(timeout=30_000)
        before = chart.inner_html()
        until(lambda: chart.inner_html() != before, seconds=30)  # drawn anew as points come
        assert page.locator(".allranks-job b", has_text="bold").count() == 0
        end.touch()
        cards.nth(1).get_by_text("Completed").wait_for(timeout=60_000)
        assert cards.first.get_by_text("Completed").is_visible()
        page.keyboard.press("Control+s")
        until(lambda: (code / "a.ipynb").read_text().count(">Completed<") == 2)
        again = page.context.new_page()
        again.goto(lab)
        again.locator(".allranks-job").nth(1).get_by_text("Completed").wait_for(timeout=60_000)
