"""The report of a sweep: improvements, and a page with history and parallel coordinates."""

from __future__ import annotations

import html.parser
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.report.sweep_page import sweep_page
from allranks.cli.report.trials import trials_table
from allranks.core.charts import spanning
from tests.support import Allranks, answer


def trial(number: int, value: float | None, **parameters: Any) -> dict[str, Any]:
    return {
        "job": f"s_{number}",
        "number": number,
        "status": "Completed",
        "parameters": parameters,
        "value": value,
        "duration": 1.5,
        "stopped_early": None,
        "error": None,
    }


def sweep(*trials: dict[str, Any]) -> dict[str, Any]:
    ranked = sorted(trials, key=lambda each: (each["value"] is None, each["value"]))
    return {
        "name": "s",
        "status": "Completed",
        "objective": {"goal": "minimize", "primary_metric": "a<b"},
        "counts": {"Completed": len(trials)},
        "total_trials": len(trials),
        "best": ranked[0] if ranked and ranked[0]["value"] is not None else None,
        "trials": ranked,
        "parameter_summary": {},
    }


class Balanced(html.parser.HTMLParser):
    """Fails at a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(*trials: dict[str, Any]) -> Balanced:
    job = sweep(*trials)
    return Balanced(sweep_page(job, *trials_table(job["trials"], "a<b")))


def test_a_page_draws_every_trial_once():
    drawn = page(
        trial(0, 3.0, lr=0.1, o="<sgd>", b=16),
        trial(1, 1.0, lr=0.001, o="adam", b=32),
        trial(2, 2.0, lr=0.5, o={"name": "adam"}, b=16),
        trial(3, None, lr=0.2, o="adam", b=32),
    )
    assert drawn.seen.count("circle") == 3
    assert drawn.seen.count("polyline") == 1 + 3


@pytest.mark.parametrize(
    "trials",
    [
        (),
        (trial(0, None, x=1),),
        (trial(0, 1.0),),
        (trial(0, 1.0, x=1), trial(1, 1.0, x=1)),
        (trial(0, -1.0, x=0.0), trial(1, -5.0, y=2)),
    ],
)
def test_a_page_of_little_is_a_page(trials: tuple[dict[str, Any], ...]):
    page(*trials)


def test_scales():
    assert spanning([1, 2, 3]).marks == ((1, "1"), (2, "2"), (3, "3"))
    wide = spanning([0.001, 0.01, 0.02, 0.5, 1.0])
    assert wide.log
    assert wide.at(0.001) == 0
    assert wide.at(1.0) == 1
    assert [label for _, label in wide.marks] == ["0.001", "0.03162", "1"]
    assert spanning([5, 5]).at(5) == 0.5
    texts = spanning(["a", 1, "a"])
    assert texts.at("1") > texts.at("a")


@pytest.mark.slow
def test_the_improvements_of_a_real_sweep(allranks: Allranks, code: Path):
    words = ("run", "--name", "s", "--sweep", "x=choice(3,5,1,2)", "--sampler", "grid")
    words += ("--concurrent", 1, "--minimize", "loss", "-m", r"loss=loss (\d+)")
    assert allranks(*words, "--", "bash", "-c", "echo loss ${{search_space.x}}").returncode == 0
    done = allranks("report", "sweep", "s", "--html", "a b.html")
    assert [line.split()[:2] for line in done.stdout.splitlines()[2:4]] == [
        ["s_0", "3"],
        ["s_2", "1"],
    ]
    Balanced((code / "a b.html").read_text())
    told = answer(allranks, "report", "sweep", "s")
    assert [each["job"] for each in told["improvements"]] == ["s_0", "s_2"]
    wrong = allranks("report", "sweep", "s_0")
    assert (wrong.returncode, "s_0 is not a sweep" in wrong.stderr) == (2, True)
    wrong = allranks("report", "sweep", "s", "--html", "no/where.html")
    assert (wrong.returncode, "folder not found" in wrong.stderr) == (2, True)


def test_reports_that_are_no_number_are_counted_beside_the_best_one():
    told = {**trial(0, 0.2, lr=1), "not_finite": 3}
    head, rows = trials_table([told, {**told, "value": None}], "loss")
    column = head.index("LOSS")
    assert [row[column] for row in rows] == ["0.2 (3 nan or infinite)", "- (3 nan or infinite)"]
