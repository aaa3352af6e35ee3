"""Several benchmarks as one suite: what is missing comes first, one JSON and one table last."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import peers
from bench.registry import BENCHES, load
from bench.report import Bar, Result, markdown

ROOT = Path(__file__).parents[2]


def bench(*words: object, **env: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "bench", *map(str, words)]
    return subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.slow
def test_all_writes_one_json_and_one_table(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    words = ("snapshot", "unpack", "--quick", "--no-torch", "--json", path)
    done = bench("all", *words, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(path.read_text())
    assert [each["bench"] for each in told["results"]] == ["snapshot", "unpack"]
    assert all(each["samples"]["s"] for each in told["results"])
    text = path.with_suffix(".md").read_text()
    assert text in done.stdout
    numbers, versions, medians = text.split("\n\n")
    for rows, ticks, columns in ((numbers, "`", 5), (medians, "", 4)):
        lines = rows.splitlines()[2:]
        assert {row.count(" | ") for row in lines} == {columns}
        benches = {f"| {ticks}{name}{ticks}" for name in ("snapshot", "unpack")}
        assert {row.split(" | ")[0] for row in lines} == benches
    assert "allranks" in versions
    assert bench("compare", path, path).returncode == 0


@pytest.mark.medium
def test_a_benchmark_that_lacks_something_is_left_out_and_told_first(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    done = bench("all", "unpack", "--json", path, PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("missing tar: unpack is left out (apt-get install tar)\n")
    (result,) = json.loads(path.read_text())["results"]
    assert result["left_out"] == ["no tar: apt-get install tar"]


@pytest.mark.medium
def test_a_name_that_is_none_is_refused() -> None:
    done = bench("all", "lunch")
    assert done.returncode == 2
    assert done.stderr == "error: there is no benchmark lunch; see --help\n"
    done = bench("peers", "install", "chromium")
    assert done.returncode == 2
    assert "chromium is not one of torch, mpi" in done.stderr


@pytest.mark.medium
def test_peers_are_listed_with_the_way_to_get_them(tmp_path: Path) -> None:
    done = bench("peers", PATH=str(tmp_path))
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(peers.PEERS)
    assert "apt-get install curl" in done.stdout


@pytest.mark.parametrize("name", BENCHES)
def test_each_benchmark_says_what_it_does_and_needs(name: str) -> None:
    assert load(name).__doc__
    about = BENCHES[name]
    assert {*about.needs, *about.beside} <= set(peers.PEERS)
    parser = argparse.ArgumentParser()
    load(name).options(parser)
    assert set(about.quick) <= set(vars(parser.parse_args([])))


def test_a_table_has_medians_bars_and_what_went_wrong() -> None:
    result = Result(
        name="x",
        text="",
        samples={"s": {"a | b": [3.0, 1.0, 2.0], "none": []}},
        bars=[Bar(what="fast", found=2.0, most=1.0)],
        wrong=["lost\nlines"],
        left_out=["srun"],
    )
    assert markdown([result]).splitlines()[2:] == [
        "| x | a \\| b | 2 | s |  |",
        "| x | **fast** | 2 |  | at most 1: MISSED |",
        "| x | left out: srun |  |  |  |",
        "| x | WRONG: lines |  |  |  |",
    ]
