"""A real browser, and a home whose server has jobs of every kind."""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import PATIENCE, Allranks, answer, command_line, leave_nothing, until

TRAIN = """\
import os, pathlib, sys, time
steps, pause = int(sys.argv[1]), float(sys.argv[2])
for step in range(steps):
    print(f"step {step} loss {1 / (step + 1):.4f} acc {step / steps:.3f}", flush=True)
    time.sleep(pause)
if len(sys.argv) > 3:
    raise ValueError("shapes (3, 4) and (5,) differ")
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/a.csv").write_text("x,y\\n1,2\\n")
pathlib.Path("outputs/a.json").write_text('{"a": [1, 2]}')
pathlib.Path("outputs/b.html").write_text("<h1>Report</h1>")
"""
METRICS = ("-m", r"loss=step (?P<step>\d+) loss (?P<value>\S+)", "-m", r"acc=acc (\S+)")
PIPELINE = """\
type: pipeline
jobs:
  make:
    command: echo 1 > ${{outputs.o}}/x
    outputs: {o: }
  use:
    command: cat ${{inputs.i}}/x
    inputs: {i: '${{parent.jobs.make.outputs.o}}'}
"""
# A smaller run of the same work, with data and a checkpoint.
ONE = """\
name: one
command: python train.py 20 0.05 && echo 1 > "$ALLRANKS_STATE_DIR/checkpoint"
code: .
inputs: {numbers: {type: uri_file, path: 'azureml:numbers@latest'}}
"""


class Site(NamedTuple):
    allranks: Allranks
    home: Path
    code: Path
    url: str

    def link(self) -> str:
        """An address that signs in as the owner."""
        return self.allranks("ui", "--print-url").stdout.strip()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    home, code = folder / "h'ome x", folder / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    (code / "pipeline.yml").write_text(PIPELINE)
    (code / "one.yml").write_text(ONE)
    allranks = command_line(home, code)
    try:
        _jobs(allranks)
        url = answer(allranks, "server", "status")["url"]
        yield Site(allranks, home, code, url)
    finally:
        leave_nothing(home)


def _jobs(allranks: Allranks) -> None:
    train = ("--", "python", "train.py")
    one = allranks("run", "--name", "good", "-n", 2, *METRICS, "-q", *train, 20, 0.05)
    assert one.returncode == 0, one.stderr
    assert allranks("run", "--name", "bad", "-n", 2, "-q", *train, 3, 0, "fail").returncode == 1
    sweep = ("--sweep", "pause=choice(0.01,0.02)", "--sweep", "n=randint(4)", "--trials", 3)
    goal = ("--minimize", "loss", *METRICS[:2])
    words = ("run", "--name", "sweep", *sweep, *goal, "-q", *train, 3, "${{search_space.pause}}")
    assert allranks(*words).returncode == 0
    assert allranks("data", "create", "numbers", "--path", "train.py").returncode == 0
    made = allranks("job", "create", "-f", "one.yml", "--stream", "-q")
    assert made.returncode == 0, made.stderr
    made = allranks("job", "create", "-f", "pipeline.yml", "--name", "pipe", "--stream", "-q")
    assert made.returncode == 0, made.stderr


@pytest.fixture
def running(site: Site) -> Iterator[str]:
    """The name of a job that runs until it is canceled."""
    words = ("run", "--detach", "--json", "-n", 2, *METRICS, "--", "python", "train.py", 5000, 0.1)
    name = json.loads(site.allranks(*words).stdout)["name"]
    until(lambda: answer(site.allranks, "job", "show", name)["status"] == "Running")
    yield name
    site.allranks("job", "cancel", name)
    site.allranks("job", "wait", name)


# Not for the whole session: Playwright's event loop runs in this thread until it is closed, and
# other modules' tests start their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright  # lazy: only for these tests

    with sync_playwright() as playwright:
        # Root may not start the sandbox; the pages are our own.
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


# Other tests make network interfaces, and Chromium then ends what it is loading.
_CHANGED = "ERR_NETWORK_CHANGED"


_OTHER_HOST = re.compile(r"^(https?|wss?)://(?!127\.0\.0\.1[:/]|([\w-]+\.)?localhost[:/])")


class Watched(NamedTuple):
    """A page of the browser, and everything that went wrong on it."""

    page: Any
    wrong: list[str]

    def go(self, address: str) -> None:
        while True:
            try:
                self.page.goto(address, wait_until="load")
                return
            except Exception as error:
                if _CHANGED not in str(error):
                    raise

    def ok(self) -> None:
        wrong = [each for each in self.wrong if _CHANGED not in each]
        assert not wrong, "\n".join(wrong)


@contextlib.contextmanager
def watched(browser: Any, **options: Any) -> Iterator[Watched]:
    """A page of its own, with its own cookies."""
    context = browser.new_context(**options)
    context.set_default_timeout(30_000 * PATIENCE)
    page, wrong = context.new_page(), []

    def note(text: str) -> None:
        # Other tests make network interfaces meanwhile, for which Chromium drops what it loads.
        if "ERR_NETWORK_CHANGED" not in text:
            wrong.append(text)

    def failed(request: Any) -> None:
        # A page that is left ends its streams, and what it was still loading.
        if "ERR_ABORTED" not in str(request.failure):
            note(f"{request.url} failed: {request.failure}")

    def refuse(route: Any) -> None:
        wrong.append(f"another host is asked: {route.request.url}")
        route.abort()

    context.route(_OTHER_HOST, refuse)
    page.on("console", lambda each: each.type == "error" and note(f"console: {each.text}"))
    page.on("pageerror", lambda each: wrong.append(f"error: {each}"))
    page.on("dialog", lambda each: (wrong.append(f"dialog: {each.message}"), each.dismiss()))
    page.on("requestfailed", failed)
    page.on("response", lambda r: r.status >= 400 and wrong.append(f"{r.status} {r.url}"))
    try:
        yield Watched(page, wrong)
    finally:
        context.close()


@pytest.fixture
def signed_in(site: Site, browser: Any) -> Iterator[Watched]:
    with watched(browser) as found:
        found.go(site.link())
        yield found


def bytes_sent(it: Watched, address: str) -> int:
    """The bytes of a page as sent, without the chart library."""
    protocol = it.page.context.new_cdp_session(it.page)
    protocol.send("Network.enable")
    protocol.send("Network.setCacheDisabled", {"cacheDisabled": True})
    names: dict[str, str] = {}
    sizes: dict[str, int] = {}
    protocol.on(
        "Network.requestWillBeSent",
        lambda each: names.update({each["requestId"]: each["request"]["url"]}),
    )
    protocol.on(
        "Network.loadingFinished",
        lambda each: sizes.update({names.get(each["requestId"], ""): each["encodedDataLength"]}),
    )
    it.go(address)
    until(lambda: any("keys.js" in url for url in sizes))
    protocol.detach()
    return sum(size for url, size in sizes.items() if "/ui/" in url and "plotly" not in url)
