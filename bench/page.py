"""The web page in a real browser: many jobs, many points, a large log, live lines, many pages."""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, table

POINTS = """
import sys
for n in range(int(sys.argv[1])):
    print(" ".join(f"m{k}={(n % 997) * (k + 1) / 997:.4f}" for k in range(8)))
"""
LARGE = """
import sys
line = "x" * 99 + "\\n"
for n in range(int(sys.argv[1]) // 100000):
    sys.stdout.write(line * 1000)
print("needle at the end")
"""
# So large that all eight charts are in view, and drawn.
_WINDOW = {"width": 1600, "height": 1700}
TICKS = """
import time
while True:
    print(f"at {time.time():.4f}", flush=True)
    time.sleep(0.2)
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--page-jobs", type=int, default=10_000, metavar="N", help="in the list (10000)")
    add("--page-points", type=int, default=100_000, metavar="N", help="of 8 series (100000)")
    add("--page-log", type=int, default=1_000_000_000, metavar="BYTES", help="of a log (1 GB)")
    add("--pages", type=int, default=50, metavar="N", help="open at once (50)")


def run(given: argparse.Namespace) -> Result:
    with chromium() as browser, Home() as home:
        site = Site(home, browser)
        found = {
            **_charts(site, given.page_points),
            **_log(site, given.page_log),
            **_live(site),
            **_list(site, given.page_jobs),
            **_open(site, given.pages),
        }
    rows = [(name, f"{value:.3g}") for name, value in found.items()]
    return Result(
        name="page",
        text=table(("", "found"), rows),
        samples=_by_unit(found),
        bars=[Bar(what=name, found=found[name], most=most) for name, most in _BARS.items()],
        wrong=home.left,
    )


def _by_unit(found: dict[str, float]) -> dict[str, dict[str, list[float]]]:
    units: dict[str, dict[str, list[float]]] = {}
    for name, value in found.items():
        what, _, unit = name.rpartition(", ")
        units.setdefault(unit.removeprefix("median "), {})[what] = [value]
    return units


_BARS = {
    "list, s": 0.3,
    "filter, s": 0.3,
    "search, s": 0.3,
    "first paint of the list, s": 1.5,
    "chart of 8 series, s": 1.0,
    "last lines of the log, s": 0.5,
    "from a rank's line to the page, median s": 0.5,
    "open pages, % of a core": 5.0,
    "the page's process with 10 pages, MB": 150.0,
}


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # only for these benchmarks

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=peers.program("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


class Site:
    """A home with its page, and pages of the browser that are signed in."""

    def __init__(self, home: Home, browser: Any) -> None:
        self.home, self._browser = home, browser
        home.allranks("server", "start")
        self.url = home.told("server", "status", "--json")["url"]

    @contextmanager
    def pages(self, count: int = 1) -> Iterator[list[Any]]:
        """Pages in profiles of five: browsers open six connections for each."""
        found, profiles = [], []
        for number in range(count):
            if number % 5 == 0:
                profiles.append(self._browser.new_context(viewport=_WINDOW))
                self.sign_in(profiles[-1])
            found.append(profiles[-1].new_page())
        yield found
        for each in profiles:
            each.close()

    def sign_in(self, profile: Any) -> None:
        page = profile.new_page()
        page.goto(self.home.allranks("ui", "--print-url").stdout.strip())
        page.close()

    def process(self) -> int:
        """The page's own process."""
        return next(
            pid
            for pid in procs.naming(str(self.home.folder))
            if "allranks.ui" in (words := procs.command_line(pid).split())
            and "allranks.agent.processes.end_with_parent" not in words
        )

    def server(self) -> int:
        pid: int = self.home.told("server", "status", "--json")["pid"]
        return pid


def _charts(site: Site, points: int) -> dict[str, float]:
    """The time from opening the page of metrics to the last of 8 charts."""
    patterns = [word for k in range(8) for word in ("-m", rf"m{k}=m{k}=(\S+)")]
    (site.home.work / "points.py").write_text(POINTS)
    words = ("run", "--name", "points", "-q", *patterns, "--", sys.executable, "points.py")
    site.home.allranks(*words, str(points))
    with site.pages() as (page,):
        page.goto(f"{site.url}/ui/jobs/points/metrics")  # Plotly is in the browser's cache then
        _until(lambda: page.locator(".chart .gtitle").count() >= 8)
        began = time.monotonic()
        page.goto(f"{site.url}/ui/jobs/points/metrics", wait_until="commit")
        _until(lambda: page.locator("#charts .chart .gtitle").count() >= 8)
        drawn = time.monotonic() - began
        pan = page.evaluate(
            """async () => {
                const chart = document.querySelector("#charts .plot");
                const began = performance.now();
                for (let at = 0; at < 20; at++)
                    await Plotly.relayout(chart, {"xaxis.range": [at * 1000, at * 1000 + 20000]});
                return (performance.now() - began) / 20;
            }"""
        )
    return {"chart of 8 series, s": drawn, "a step of panning, ms": pan}


def _log(site: Site, size: int) -> dict[str, float]:
    (site.home.work / "large.py").write_text(LARGE)
    words = ("run", "--name", "large", "-q", "--", sys.executable, "large.py", str(size))
    site.home.allranks("run", "--detach", *words[1:])
    site.home.allranks("job", "wait", "large")
    with site.pages() as (page,):
        began = time.monotonic()
        page.goto(f"{site.url}/ui/jobs/large/logs?rank=0", wait_until="commit")
        _until(lambda: "needle" in (page.locator("#log").text_content() or ""))
        shown = time.monotonic() - began
        page.fill("#search input[name=text]", "needle")
        began = time.monotonic()
        page.get_by_role("button", name="Find").click()
        _until(lambda: page.locator("#found").text_content() == "1 line")
        searched = time.monotonic() - began
    return {"last lines of the log, s": shown, "search through the log, s": searched}


def _live(site: Site) -> dict[str, float]:
    """A rank prints the time; the page notes when the line is there."""
    (site.home.work / "ticks.py").write_text(TICKS)
    words = ("run", "--name", "ticks", "--detach", "--", sys.executable, "ticks.py")
    site.home.allranks(*words)
    with site.pages() as (page,):
        page.goto(f"{site.url}/ui/jobs/ticks/logs?rank=0")
        page.evaluate(
            """() => {
                window.late = [];
                new MutationObserver((changes) => {
                    for (const change of changes) for (const line of change.addedNodes)
                        window.late.push(Date.now() / 1000 - Number(line.textContent.slice(3)));
                }).observe(document.getElementById("log"), {childList: true});
            }"""
        )
        _until(lambda: page.evaluate("window.late.length") > 60)
        late = page.evaluate("window.late.slice(10)")
    site.home.allranks("job", "cancel", "ticks")
    return {
        "from a rank's line to the page, median s": statistics.median(late),
        "the same, greatest of them, s": max(late),
    }


def _list(site: Site, jobs: int) -> dict[str, float]:
    """Copies of a finished job's row; the record is otherwise real."""
    site.home.allranks("run", "--name", "one", "-q", "--", "true")
    site.home.allranks("server", "stop")
    with (
        closing(sqlite3.connect(site.home.folder / "allranks.db")) as database,
        database,
    ):
        columns = [row[1] for row in database.execute("PRAGMA table_info(jobs)")]
        rest = ", ".join(f'"{each}"' for each in columns if each not in ("id", "name"))
        database.execute(
            f"WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < {jobs}) "
            f"INSERT INTO jobs (name, {rest}) SELECT 'copy-' || k, {rest} FROM jobs, n "
            "WHERE jobs.name = 'one'"
        )
        columns = [row[1] for row in database.execute("PRAGMA table_info(job_annotations)")]
        rest = ", ".join(f'"{each}"' for each in columns if each != "job_id")
        database.execute(
            f"INSERT INTO job_annotations (job_id, {rest}) SELECT jobs.id, {rest} FROM jobs, "
            "job_annotations WHERE jobs.name LIKE 'copy-%'"
        )
    site.home.allranks("server", "start")
    found = {}
    with site.pages() as (page,):
        for name, query in (
            ("list", ""),
            ("filter", "?status=Completed&sort=name"),
            ("search", "?name=copy-99*"),
        ):
            address = f"{site.url}/ui/{query}"
            times = []
            for _ in range(5):
                began = time.monotonic()
                assert page.request.get(address).ok
                times.append(time.monotonic() - began)
            found[f"{name}, s"] = statistics.median(times)
        page.goto(f"{site.url}/ui/")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        _until(lambda: page.evaluate(paint) is not None)
        found["first paint of the list, s"] = page.evaluate(paint) / 1000
    return found


def _open(site: Site, count: int) -> dict[str, float]:
    """What open pages cost while nothing happens, with all their streams."""
    with site.pages(10) as pages:
        for number, page in enumerate(pages):
            page.goto(f"{site.url}/ui/" if number % 2 else f"{site.url}/ui/jobs/points/metrics")
        memory = procs.resident_mb(site.process())
    with site.pages(count) as pages:
        for page in pages:
            page.goto(f"{site.url}/ui/")
        time.sleep(3)
        before, began = _cpu(site), time.monotonic()
        time.sleep(30)
        share = 100 * (_cpu(site) - before) / (time.monotonic() - began)
    return {"the page's process with 10 pages, MB": memory, "open pages, % of a core": share}


def _cpu(site: Site) -> float:
    """Of the server and of the page's process."""
    return procs.cpu_seconds(site.server()) + procs.cpu_seconds(site.process())


def _until(fact: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
