"""Regressions are told from chance, by the command that CI would run."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench.compare import Change, compare
from bench.stats import ratio_of_medians

ROOT = Path(__file__).parents[2]
STEADY = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01]


def result(unit: str = "s", **samples: Sequence[float]) -> Mapping[str, object]:
    return {"bench": "launch", "samples": {unit: samples}}


def slower(by: float) -> list[float]:
    return [each * by for each in STEADY]


def only(changes: list[Change]) -> Change:
    (change,) = changes
    return change


def test_what_takes_a_third_longer_is_worse() -> None:
    change = only(compare(result(a=STEADY), result(a=slower(1.3))))
    assert change.ratio == pytest.approx(1.3)
    assert 1.2 < change.low < 1.3 < change.high < 1.4
    assert change.verdict(1.1) == "WORSE"
    assert change.verdict(1.4) == ""


def test_a_rate_that_falls_is_worse_too() -> None:
    change = only(compare(result("done/s", a=STEADY), result("done/s", a=slower(0.5))))
    assert change.ratio == pytest.approx(2)
    assert change.verdict(1.1) == "WORSE"


def test_what_is_faster_is_better() -> None:
    assert only(compare(result(a=slower(1.3)), result(a=STEADY))).verdict(1.1) == "better"


def test_a_median_that_moved_by_chance_is_neither() -> None:
    noisy = [1.0, 3.0, 0.9, 2.8, 1.1, 3.1, 1.0]
    other = [2.9, 1.0, 3.0, 0.9, 3.2, 1.1, 2.8]
    change = only(compare(result(a=noisy), result(a=other)))
    assert change.ratio > 2
    assert change.verdict(1.1) == ""


def test_an_interval_holds_its_ratio_and_is_the_same_each_time() -> None:
    ratio, low, high = ratio_of_medians(slower(2), STEADY)
    assert low <= ratio <= high
    assert ratio_of_medians(slower(2), STEADY) == (ratio, low, high)
    assert ratio_of_medians([3.0], [2.0]) == (1.5, 1.5, 1.5)


def test_only_what_both_have_is_compared() -> None:
    old = {"results": [result(a=STEADY, gone=STEADY), {"bench": "lines", "samples": {}}]}
    new = {"results": [result(a=STEADY, added=STEADY, none=[])]}
    assert [each.name for each in compare(old, new)] == ["a"]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("by", "words", "code"), [(1.3, [], 1), (1.3, ["--threshold", "1.5"], 0), (1.0, [], 0)]
)
def test_the_exit_code_tells(tmp_path: Path, by: float, words: list[str], code: int) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(result(run=STEADY)))
    new.write_text(json.dumps({"results": [result(run=slower(by))]}))
    done = bench("compare", old, new, *words)
    assert done.returncode == code, done.stderr
    assert "launch: run" in done.stdout
    assert ("WORSE" in done.stdout) == (code == 1)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("text", "said"), [("{", "not a result of bench"), ("{}", "no benchmark in common")]
)
def test_what_is_no_result_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text if text == "{" else json.dumps(result(b=STEADY)))
    other = tmp_path / "other.json"
    other.write_text(json.dumps(result(a=STEADY)))
    done = bench("compare", path, other)
    assert done.returncode == 2
    assert said in done.stderr


def bench(*words: object) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "bench", *map(str, words)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100)
