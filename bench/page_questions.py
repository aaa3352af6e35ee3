"""Questions about real runs, and the clicks that their answer needs: our page, MLflow's and Ray's.

A browser follows each path and looks for the answer in the text that is shown. A path that is
missing is a question that the page does not answer.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import peers, procs
from bench.home import Home
from bench.page import Site, chromium
from bench.report import Result, table

TRAIN = """\
import os, sys, time
import mlflow
rank = int(os.environ.get("RANK", 0))
lr, fail = float(sys.argv[1]), "fail" in sys.argv
if rank == 0:
    mlflow.log_param("lr", lr)
for step in range(30):
    loss = 1 / (1 + lr * step)
    if rank == 0:
        mlflow.log_metric("loss", loss, step=step)
    print(f"step {step} rank {rank} loss {loss:.4f}", flush=True)
    time.sleep(0.05)
    if fail and rank == 1 and step == 10:
        raise ValueError("shapes (3, 4) and (5,) differ")
if rank == 0:
    os.makedirs("outputs", exist_ok=True)
    mlflow.log_text("weights", "model.txt")
    open("outputs/model.txt", "w").write("weights")
"""
RAY = """\
import sys, time
import ray
ray.init()

@ray.remote(num_cpus=0.5)
class Worker:
    def train(self, rank, lr, fail):
        for step in range(30):
            print(f"step {step} rank {rank} loss {1 / (1 + lr * step):.4f}", flush=True)
            time.sleep(0.05)
            if fail and rank == 1 and step == 10:
                raise ValueError("shapes (3, 4) and (5,) differ")

workers = [Worker.options(name=f"rank{n}").remote() for n in range(2)]
several = enumerate(workers)
ray.get([each.train.remote(n, float(sys.argv[1]), "fail" in sys.argv) for n, each in several])
"""
WAITING = "import ray; ray.init(); ray.get(ray.remote(num_cpus=64)(lambda: 1).remote())"
# Milliseconds that a page has for its answer.
_PATIENCE = 60_000

# One click: the role of what is clicked and its name; or `fill`, a field and what is typed.
Click = tuple[str, ...]


class Answer(NamedTuple):
    """What is clicked from the first page, and a pattern of the answer."""

    clicks: Sequence[Click]
    answer: str


class Question(NamedTuple):
    text: str
    ours: Answer
    mlflow: Answer | None = None
    ray: Answer | None = None


def _open(name: str, *more: Click) -> tuple[Click, ...]:
    return (("link", name), *more)


_BAD_RAY: Click = ("first", "raysubmit")
QUESTIONS = (
    Question(
        "Which run failed?",
        Answer((), r"bad\s+work\s+Failed"),
        Answer((), r"bad"),
        Answer((), r"raysubmit"),
    ),
    Question(
        "With which error?",
        Answer(_open("bad"), r"ValueError: shapes"),
        ray=Answer((_BAD_RAY, ("text", "View details")), r"ValueError: shapes"),
    ),
    Question("On which rank first?", Answer(_open("bad"), r"rank 1 on node 1")),
    Question(
        "At which line of my code?",
        Answer(_open("bad"), r"check train\.py:14"),
        ray=Answer((_BAD_RAY, ("text", "View details")), r'train\.py", line 12'),
    ),
    Question(
        "What differs from the last good run?",
        Answer(_open("bad", ("text", "the last job that completed")), r"0\.2 fail"),
        Answer(
            (("check", "bad"), ("check", "good"), ("button", "Compare")),
            r"lr\s+0\.2\s+0\.1|lr\s+0\.1\s+0\.2",
        ),
    ),
    Question(
        "What did rank 1 print last?",
        Answer(_open("bad", ("link", "log of rank 1")), r"step 10 rank 1"),
        ray=Answer((("link", "Actors"), ("row", "rank1"), ("text", "STDOUT")), r"step 10 rank 1"),
    ),
    Question(
        "Where did all ranks print a word?",
        Answer(
            _open("good", ("link", "Logs"), ("fill", "Search", "loss 0.5000"), ("button", "Find")),
            r"2 lines",
        ),
    ),
    Question(
        "Does the loss fall?",
        Answer(_open("good"), r"loss\s+0\.2564"),
        Answer(_open("good", ("tab", "Model metrics")), r"good \(loss\)"),
    ),
    Question(
        "What do nodes and GPUs do meanwhile?",
        Answer(_open("good", ("link", "Metrics")), r"cpu"),
        Answer(_open("good", ("tab", "System metrics")), r"cpu_utilization"),
        Answer((("link", "Cluster"),), r"CPU"),
    ),
    Question("Where did the time go?", Answer(_open("good"), r"computing [\d.]+ (s|min)")),
    Question("What slowed it down?", Answer(_open("good", ("link", "Report")), r"Bottleneck")),
    Question(
        "Why is a job waiting?",
        Answer(_open("second"), r"(?i)waits? for|memory"),
        ray=Answer((), r"(?s)Pending Demands.{0,40}CPU.{0,4}64"),
    ),
    Question(
        "Where is every rank right now?",
        Answer(_open("first", ("link", "Stacks"), ("button", "Take stacks now")), r"(?i)rank"),
    ),
    Question(
        "Which trial is best?",
        Answer(_open("search"), r"The best is"),
        Answer((("button", "Sort: Created"), ("text", "loss")), r"search"),
    ),
    Question(
        "What is each parameter worth?",
        Answer(_open("search"), r"(?i)what each parameter is worth"),
    ),
    Question(
        "What does a second node buy?",
        Answer((("check", "good"), ("check", "one"), ("button", "Compare")), r"Scaling by nodes"),
    ),
    Question(
        "Which code ran?",
        Answer(_open("good", ("link", "Code"), ("link", "train.py")), r"mlflow\.log_param"),
    ),
    Question(
        "Which files came out, and what is in them?",
        Answer(
            _open("good", ("link", "Files"), ("link", "artifacts/outputs/model.txt")), r"weights"
        ),
        Answer(_open("good", ("tab", "Artifacts"), ("text", "model.txt")), r"weights"),
    ),
    Question(
        "Which variables does each rank get?",
        Answer(_open("good", ("link", "Details")), r"RANK\s+\{rank\}"),
    ),
    Question(
        "Run it again with another learning rate",
        Answer(
            _open(
                "good",
                ("link", "Restart"),
                ("fill", "command", "python train.py 0.2"),
                ("button", "Restart"),
            ),
            r"(NotStarted|Queued|Provisioning|Preparing|Running)\s",
        ),
    ),
    # Ten that the page was not made for.
    Question(
        "Which of all runs has the least loss?",
        Answer(
            (("select", "Order", "last loss, least first"),),
            r"Created\s+(?:.*\n){1,8}.*loss 0\.\d",
        ),
    ),
    Question(
        "What was the loss at step 17, to the digit?",
        Answer(_open("good", ("link", "Metrics"), ("point", "loss", "17")), r"0\.3703\d*"),
    ),
    Question(
        "How long did it wait before it ran?", Answer(_open("good"), r"queueing [\d.]+ (s|min)")
    ),
    Question("Who ran it?", Answer(_open("good"), r"by \w+ · created")),
    Question(
        "How much memory did it take at most?",
        Answer(_open("good"), r"memory\s+at most [\d.]+ [kMG]?B"),
    ),
    Question(
        "On which machine did rank 1 run?", Answer(_open("good"), r"node 1 exited \S+ [\d.]+")
    ),
    Question("With which command?", Answer(_open("good"), r"python train\.py 0\.1")),
    Question(
        "Is it silent, or is its output lost?",
        Answer(_open("first", ("link", "Logs")), r"Waiting for output|Nothing was printed"),
    ),
    Question("With which exit code did it end?", Answer(_open("bad"), r"exited with code 1")),
    Question(
        "How do I get its files onto my machine?",
        Answer(_open("good", ("link", "Files")), r"allranks job download good"),
    ),
)
# To type, and to point at something, are no clicks.
_FREE = {"fill", "point"}


def options(parser: argparse.ArgumentParser) -> None:
    what = "a Python with ray[default], to look at its dashboard"
    parser.add_argument("--dashboard-python", type=Path, metavar="PATH", help=what)


def run(given: argparse.Namespace) -> Result:
    ray = given.dashboard_python or peers.program("ray", "python")
    with chromium() as browser, Home() as home:
        site = Site(home, browser)
        _runs(home)
        token = (home.folder / "token").read_text().strip()
        found: dict[str, list[str]] = {}
        profile = browser.new_context()
        site.sign_in(profile)
        found["allranks"] = _clicks(profile, f"{site.url}/ui/", [each.ours for each in QUESTIONS])
        profile = browser.new_context(http_credentials={"username": "me", "password": token})
        runs = f"{site.url}/mlflow/#/experiments/1/runs"
        found["MLflow"] = _clicks(profile, runs, [each.mlflow for each in QUESTIONS])
        if ray:
            with _ray(Path(ray), home.work) as url:
                paths = [each.ray for each in QUESTIONS]
                found["Ray"] = _clicks(browser.new_context(), url, paths)
    rows = [(q.text, *(each[n] for each in found.values())) for n, q in enumerate(QUESTIONS)]
    return Result(
        name="page_questions",
        text=table(("", *found), rows),
        data={
            "clicks": found,
            "questions": [each.text for each in QUESTIONS],
            "count": len(QUESTIONS),
            "answered": {name: sum(map(_few, clicks)) for name, clicks in found.items()},
        },
        wrong=[*home.left, *(f"not answered: {each[0]}" for each in rows if each[1] == "?")],
        left_out=[] if ray else [f"Ray (--dashboard-python, or {peers.hint('ray')})"],
    )


def _runs(home: Home) -> None:
    (home.work / "train.py").write_text(TRAIN)
    train = ("--", "python", "train.py")
    home.allranks("run", "-n", "2", "--name", "good", "-q", *train, "0.1")
    bad = home.argv("run", "-n", "2", "--name", "bad", "-q", *train, "0.2", "fail")
    subprocess.run(bad, cwd=home.work, env=home.env, capture_output=True, check=False)
    home.allranks("run", "--name", "one", "-q", *train, "0.1")
    sweep = ("--sweep", "lr=uniform(0.1,1.0)", "--trials", "8", "--minimize", "loss")
    home.allranks("run", "--name", "search", "-q", *sweep, *train, "${{search_space.lr}}")
    half = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') * 6 // 10 >> 20}m"
    script = "import time; time.sleep(600)"
    for name in ("first", "second"):
        room = ("--set", f"resources.properties.local.memory={half}")
        home.allranks("run", "--detach", "--name", name, *room, "-q", "--", "python", "-c", script)


def _few(clicks: str) -> bool:
    return clicks.isdigit() and int(clicks) <= 4


def _clicks(profile: Any, start: str, paths: Sequence[Answer | None]) -> list[str]:
    """The clicks of each path; `-` where there is none, `?` where its answer did not come."""
    page = profile.new_page()
    page.set_default_timeout(_PATIENCE)
    page.set_viewport_size({"width": 1700, "height": 1200})
    found = []
    for path in paths:
        if path is None:
            found.append("-")
            continue
        page.goto("about:blank")
        page.goto(start)
        page.wait_for_timeout(500)
        try:
            for click in path.clicks:
                _do(page, click)
            _wait_for(page, path.answer)
            found.append(str(sum(click[0] not in _FREE for click in path.clicks)))
        except Exception as error:
            print(f"{path}: {str(error)[:300]}\n{page.inner_text('body')[:1500]}\n")
            found.append("?")
    page.close()
    return found


# Where a chart shows a place of its axis, once it is drawn.
_POINT = """([name, at]) => {
    const box = document.querySelector(`.plot[data-name="${name}"]`);
    const area = box?.querySelector(".nsewdrag")?.getBoundingClientRect();
    return area && [area.x + box._fullLayout.xaxis.d2p(at), area.y + area.height / 2];
}"""


def _do(page: Any, click: Click) -> None:
    page.wait_for_timeout(2000)  # tables that are drawn anew swallow clicks
    what, name = click[0], click[1]
    if what == "fill":
        page.get_by_label(name).first.fill(click[2])
    elif what == "select":
        page.get_by_label(name).first.select_option(label=click[2])
    elif what == "point":
        place = page.wait_for_function(_POINT, arg=[name, float(click[2])]).json_value()
        page.mouse.move(*place)
    elif what == "check":
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        row.get_by_role("checkbox").first.check(force=True)
    elif what == "text":
        page.get_by_text(name).first.click()
    elif what == "row":
        page.locator("tr").filter(has_text=name).locator("a[href*='actors/']").first.click()
    elif what == "first":
        page.get_by_role("link", name=name).first.click()
    else:
        page.get_by_role(what, name=name, exact=what == "link").first.click()


def _wait_for(page: Any, pattern: str) -> None:
    until = time.monotonic() + _PATIENCE / 1000
    while not re.search(pattern, page.inner_text("body")):
        if time.monotonic() > until:
            raise TimeoutError(f"{pattern!r} is not on the page")
        page.wait_for_timeout(100)


@contextmanager
def _ray(python: Path, work: Path) -> Iterator[str]:
    """The dashboard of a Ray with the same runs; the newest is the one that failed."""
    port, ray = 28265, python.parent / "ray"
    env = {**procs.environment(), "RAY_AUTH_MODE": "disabled"}
    env |= {"RAY_ADDRESS": f"http://127.0.0.1:{port}"}
    (work / "ray_train.py").write_text(RAY)
    head = ("--head", "--include-dashboard=true", f"--dashboard-port={port}", "--port=26379")
    start = [str(ray), "start", *head, "--num-cpus=2", "--disable-usage-stats"]
    subprocess.run(start, env=env, check=True, capture_output=True)
    try:
        submit = [str(ray), "job", "submit"]
        argv = [*submit, "--no-wait", "--", str(python), "-c", WAITING]
        subprocess.run(argv, env=env, capture_output=True, check=False)
        for words in (["0.1"], ["0.2", "fail"]):
            argv = [*submit, "--", str(python), str(work / "ray_train.py"), *words]
            subprocess.run(argv, env=env, capture_output=True, check=False)
        yield f"http://127.0.0.1:{port}/#/overview"
    finally:
        subprocess.run([str(ray), "stop"], env=env, capture_output=True, check=False)
