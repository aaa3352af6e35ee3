"""The one table of numbers, which the docs print: ``table.md``, filled with what results hold.

``{name}`` is the median of the samples of that name, with ``unit: `` before it where several units
have it; else what a bar measured; else a number of the result. ``*`` stands for anything. A part
between commas is left out where its number was not measured, and so is a row without its first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import FOLDER, number

PUBLISHED, TEMPLATE = FOLDER / "published.json", Path(__file__).with_name("table.md")
ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- python -m bench publish -->\n", "<!-- end -->\n"
# Of the README.
SENTENCE = "Three trivial ranks take {} s; allranks takes {} s"
# Loads above it are shown: others used the machine.
_QUIET = 1.5
_NAME = re.compile(r"\{(.+?)\}")

Results = Sequence[Mapping[str, Any]]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULT.json", help="of any bench")


def main(given: argparse.Namespace) -> int:
    """Keep results as the published ones, and write their numbers into the docs."""
    kept = {_series(result): result for result in json.loads(PUBLISHED.read_text())["results"]}
    for file in given.files:
        content = json.loads(file.read_text())
        for result in content.get("results", [content]):
            if "--quick" in result["argv"]:
                print(f"error: {file} is of --quick, whose numbers mean little", file=sys.stderr)
                return 2
            kept.pop(_series(result), None)
            kept[_series(result)] = result
    results = list(kept.values())
    PUBLISHED.write_text(json.dumps({"results": results}, indent=1) + "\n")
    for path, text in pages(results).items():
        path.write_text(text)
    return 0


def pages(results: Results) -> dict[Path, str]:
    """What the pages with numbers hold, if these results are published."""
    page, readme = ROOT / "docs" / "bench.md", ROOT / "README.md"
    before, rest = page.read_text().split(BEGIN)
    text = f"{before}{BEGIN}{table(results)}{END}{rest.split(END)[1]}"
    words = (_NAME.findall(line) for line in TEMPLATE.read_text().splitlines())
    ours, torchrun = next(names for names in words if names)[:2]
    launch = next(result for result in reversed(results) if _bench(result) == "launch")
    sentence = SENTENCE.format(*(f"{_value(each, launch):.2g}" for each in (torchrun, ours)))
    pattern = SENTENCE.format("[0-9.]+", "[0-9.]+")
    return {page: text, readme: re.sub(pattern, sentence, readme.read_text())}


def table(results: Results) -> str:
    """The table in Markdown, of the rows that these results have numbers for: of several, the last.
    Its last column says when each was measured, and beside how much other work."""
    head, rule, *rows = TEMPLATE.read_text().splitlines()
    lines, versions = [f"{head} measured on |", f"{rule}---|"], set[str]()
    for row in rows:
        bench, measured, ours, beside, bars = (cell.strip() for cell in row.split("|")[1:-1])
        for result in reversed(results):
            cells = [_filled(ours, result), _filled(beside, result), _bar(bars, result)]
            if _bench(result) == bench and cells[0]:
                cells = [f"`{bench}`", _filled(measured, result), *cells, _when(result)]
                lines.append(f"| {' | '.join(cells)} |")
                versions.update(_versions(result["machine"]))
                break
    return "\n".join([*lines, "", f"Versions: {', '.join(sorted(versions))}."]) + "\n"


def _versions(machine: Mapping[str, Any]) -> list[str]:
    ours = {"allranks": machine["allranks"], "Python": machine["python"]}
    return [f"{name} {version}" for name, version in {**ours, **machine["peers"]}.items()]


def _bench(result: Mapping[str, Any]) -> str:
    return str(result["bench"]) + " --gpu" * ("--gpu" in result["argv"])


def _series(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Results with the same are of the same measurement."""
    names = (f"{unit}: {name}" for unit, by in result["samples"].items() for name in by)
    return _bench(result), *sorted(names)


def _value(name: str, result: Mapping[str, Any]) -> Any:
    unit, _, plain = name.partition(": ")
    for each, samples in result["samples"].items():
        wanted = plain if each == unit else name
        for series, values in samples.items():
            if values and fnmatchcase(series, wanted):
                return median(values)
    for bar in result["bars"]:
        if fnmatchcase(bar["what"], name):
            return float(bar["found"])
    value: Any = result
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _filled(text: str, result: Mapping[str, Any]) -> str:
    """The text with its numbers, without the parts that lack one."""
    parts = []
    for part in re.split(r", (?![^{]*\})", text):
        values = [_value(name, result) for name in _NAME.findall(part)]
        if None not in values:
            shown = iter([_shown(value) for value in values])
            parts.append(_NAME.sub(lambda _, shown=shown: next(shown), part))
    return ", ".join(parts)


def _shown(value: float | str | None) -> str:
    if isinstance(value, float | int):
        return f"{value:,.0f}" if abs(value) >= 1000 else number(value)
    return str(value)


def _bar(text: str, result: Mapping[str, Any]) -> str:
    """The bound of the bar that the text names, and whether it was missed."""
    for name in _NAME.findall(text):
        for bar in result["bars"]:
            if fnmatchcase(bar["what"], name):
                bound = _NAME.sub(f"{bar['bound']:g}", text)
                return bound if bar["met"] else f"{bound}: missed"
    return ""


def _when(result: Mapping[str, Any]) -> str:
    load = result["machine"]["load_1_5_15"][0]
    return str(result["at"])[:10] + (f", load {load:.0f}" if load > _QUIET else "")
