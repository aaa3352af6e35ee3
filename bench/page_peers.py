"""The web page beside what it might have been built with: NiceGUI and Dash, and in a browser."""

from __future__ import annotations

import argparse
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import peers, procs
from bench.home import Home
from bench.page import Site, chromium
from bench.report import Result, table

# A list of 50 jobs and a chart of 2,000 points, as each would show them.
NICEGUI = """
import random, sys
from nicegui import ui

@ui.page("/")
def index():
    rows = [{"name": f"job{n}", "status": "Completed", "seconds": n} for n in range(50)]
    ui.table(rows=rows, columns=[{"name": k, "label": k, "field": k} for k in rows[0]])
    points = [[n, random.random()] for n in range(2000)]
    axes = {"xAxis": {"type": "value"}, "yAxis": {"type": "value"}}
    ui.echart({**axes, "series": [{"type": "line", "data": points}]})

ui.run(port=int(sys.argv[1]), show=False, reload=False)
"""
DASH = """
import random, sys
from dash import Dash, dash_table, dcc, html

def layout():
    rows = [{"name": f"job{n}", "status": "Completed", "seconds": n} for n in range(50)]
    points = {"x": list(range(2000)), "y": [random.random() for _ in range(2000)]}
    return html.Div([dash_table.DataTable(rows), dcc.Graph(figure={"data": [points]})])

app = Dash(__name__)
app.layout = layout
app.run(port=int(sys.argv[1]))
"""
POINTS = "for n in range(2000): print('loss:', 1 / (n + 1))"
_PAGES = 10


class Found(NamedTuple):
    """Seconds, MB and percent of a core."""

    start: float
    memory: float
    memory_with_pages: float
    weight: float
    first_paint: float
    idle: float


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page-python", metavar="PATH", help="a Python with nicegui and dash")


def run(given: argparse.Namespace) -> Result:
    found: dict[str, Found] = {}
    python = given.page_python or peers.program("pages")
    left_out = [] if python else [f"NiceGUI and Dash (--page-python, or {peers.hint('pages')})"]
    with chromium() as browser, Home() as home:
        if python:
            for name, script in (("NiceGUI", NICEGUI), ("Dash", DASH)):
                file = home.work / f"{name}.py"
                file.write_text(script)
                with _started(python, file) as (url, process, took):
                    found[name] = _look(browser, url, process, took)
        (home.work / "points.py").write_text(POINTS)
        site = Site(home, browser)
        words = ("run", "--name", "points", "-q", "-m", r"loss=loss: (\S+)")
        home.allranks(*words, "--", "python", "points.py")
        for _ in range(49):
            home.allranks("run", "-q", "--", "true")
        began = time.monotonic()
        home.allranks("ui", "--print-url")
        took = time.monotonic() - began
        for name, path in (("allranks, list", "/"), ("allranks, chart", "/jobs/points/metrics")):
            found[name] = _look(browser, f"{site.url}/ui{path}", site.process(), took, site.sign_in)
    rows = [(name, *(f"{value:.2f}" for value in each)) for name, each in found.items()]
    head = ("", "start, s", "MB", f"MB, {_PAGES} pages", "weight, MB", "first paint, s", "idle, %")
    return Result(
        name="page_peers",
        text=table(head, rows),
        samples={
            "s": {f"{name}: first paint": [each.first_paint] for name, each in found.items()},
            "MB": {
                **{f"{name}: memory": [each.memory] for name, each in found.items()},
                **{f"{name}: ten pages": [each.memory_with_pages] for name, each in found.items()},
            },
        },
        data={name: each._asdict() for name, each in found.items()},
        wrong=home.left,
        left_out=left_out,
    )


@contextmanager
def _started(python: str, file: Path) -> Iterator[tuple[str, int, float]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    words, quiet = [python, str(file), str(port)], subprocess.DEVNULL
    with subprocess.Popen(words, cwd=file.parent, stdout=quiet, stderr=quiet) as process:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if process.poll() is not None:
                        raise RuntimeError(f"{file.name} ended before it was reached") from None
                    time.sleep(0.01)
            took = time.monotonic() - began
            yield f"http://127.0.0.1:{port}/", process.pid, took
        finally:
            process.terminate()


def _look(
    browser: Any,
    url: str,
    process: int,
    start: float,
    sign_in: Callable[[Any], None] = lambda _: None,
) -> Found:
    """Ten pages, in profiles of five: browsers open six connections for each."""
    alone, size, paint, profiles = _memory(process), [0.0], 0.0, []
    for number in range(_PAGES):
        if number % 5 == 0:
            profiles.append(browser.new_context())
            sign_in(profiles[-1])
        page = profiles[-1].new_page()
        if number == 0:
            network = profiles[-1].new_cdp_session(page)
            network.send("Network.enable")
            network.on(
                "Network.loadingFinished",
                lambda told: size.__setitem__(0, size[0] + told["encodedDataLength"] / 1e6),
            )
        page.goto(url)
        page.wait_for_timeout(1500)
        if number == 0:
            entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paint = page.evaluate(entry) / 1000
    with_pages, before = _memory(process), _cpu(process)
    time.sleep(10)
    idle = (_cpu(process) - before) * 10
    for each in profiles:
        each.close()
    return Found(start, alone, with_pages, size[0], paint, idle)


def _memory(process: int) -> float:
    return sum(procs.resident_mb(each) for each in procs.family(process))


def _cpu(process: int) -> float:
    return sum(procs.cpu_seconds(each) for each in procs.family(process))
