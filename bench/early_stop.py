"""A sweep whose bad trials are stopped early, and the share of the time that this should save."""

from __future__ import annotations

import argparse
import json
import sys

from bench.home import Home
from bench.report import Bar, Result, table

# Trial x reports 1 - |x - 0.3|, so that all but the first two are 0.25 below the best.
VALUES = (0.3, 0.4, 0.6, 0.7, 0.8, 0.9)
STAYS = 2
DELAY = 4
PAUSE = 0.5
SCRIPT = """
import sys, time
for step in range(int(sys.argv[2])):
    print("score:", 1 - abs(float(sys.argv[1]) - 0.3), flush=True)
    time.sleep(float(sys.argv[3]))
"""
SPACE = f"""
search_space: {{x: {{type: choice, values: {list(VALUES)}}}}}
sampling_algorithm: grid
early_termination: {{type: bandit, slack_amount: 0.25, delay_evaluation: {DELAY}}}
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reports", type=int, default=40, metavar="N", help="of a trial (40)")


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        (home.work / "trial.py").write_text(SCRIPT)
        (home.work / "space.yml").write_text(SPACE)
        done = home.allranks(
            *("run", "--name", "s", "--sweep", "space.yml", "-q"),
            *("--concurrent", str(len(VALUES))),
            *("-m", "score=score: ([0-9.]+)", "--maximize", "score", "--"),
            *(sys.executable, "trial.py", "${{search_space.x}}"),
            *(str(given.reports), str(PAUSE)),
        )
        assert done.returncode == 0, done.stderr
        shown = json.loads(home.allranks("job", "show", "s", "--json").stdout)
    trials = shown["trials"]
    whole = max(each["duration"] for each in trials if each["status"] == "Completed")
    computed = (len(VALUES) - STAYS) * (1 - DELAY / given.reports) / len(VALUES)
    saved = sum(whole - each["duration"] for each in trials) / (whole * len(trials))
    stopped = sum(1 for each in trials if each["stopped_early"])
    rows = [
        (str(each["parameters"]["x"]), each["status"], f"{each['duration']:.1f}") for each in trials
    ]
    text = table(("x", "status", "seconds"), rows)
    share = f"saved {saved:.0%} of the trials' time; computed {computed:.0%}"
    wrong = [] if stopped == len(VALUES) - STAYS else [f"{stopped} trials were stopped"]
    return Result(
        name="early_stop",
        text=f"{text}\n{share}",
        samples={"s": {"a trial that runs to its end": [whole]}},
        data={
            "trials": trials,
            "saved_percent": 100 * saved,
            "computed_percent": 100 * computed,
        },
        bars=[Bar(what="share of the computed saving", found=saved / computed, least=0.9)],
        wrong=[*wrong, *home.left],
    )
