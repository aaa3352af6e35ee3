"""The docs print what was published, and nothing else; and the table takes what benches write."""

import json

from bench.publish import PUBLISHED, TEMPLATE, pages, table
from bench.registry import BENCHES
from bench.report import Bar, Result


def test_the_docs_have_the_published_numbers() -> None:
    for path, text in pages(json.loads(PUBLISHED.read_text())["results"]).items():
        assert path.read_text() == text, f"{path}: python -m bench publish RESULT.json"


def test_each_row_names_a_bench_and_has_all_cells() -> None:
    for row in TEMPLATE.read_text().splitlines()[2:]:
        assert row.count("|") == 6, row
        assert row.split("|")[1].split()[0] in BENCHES


def test_rows_are_of_what_was_measured() -> None:
    samples = {"s": {"allranks, all steps run": [3.0, 1.0, 2.0], "make -j 10": [1200.4]}}
    bars = [Bar(what="seconds a step", found=0.02, most=0.01)]
    older = Result(name="pipeline", text="", samples={"s": {"make -j 10": [1.0]}}).json()
    newer = Result(name="pipeline", text="", samples=samples, bars=bars, data={"steps": 10}).json()
    newer |= {"at": "2026-11-27T00:00:00", "machine": {**newer["machine"], "peers": {"make": "4"}}}
    newer["machine"]["load_1_5_15"] = [7.1, 0.0, 0.0]
    *_, row, _, versions = table([newer, older]).splitlines()
    assert row == (
        "| `pipeline` | 10 trivial steps, run | 2 s | make 1,200 s | 0.01 s a step: missed "
        "| 2026-11-27, load 7 |"
    )
    assert versions.endswith("make 4.")
