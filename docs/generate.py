"""Write the reference pages from the code: ``python docs/generate.py OUT_DIR``.

The site runs this before its build. Nothing that it writes is committed.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import allranks
from allranks.cli.commands import COMMANDS
from allranks.cli.examples import EXAMPLES
from allranks.cli.main import parser_of
from allranks.plan.diagnosis.causes import TABLE

PAGES = {
    "cli.md": "Command line",
    "python.md": "Python SDK",
    "failures.md": "Failure causes",
}


def write(out: Path) -> list[Path]:
    """Write every page and ``index.md`` below ``out``. Returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {"cli.md": _cli(), "python.md": _python(), "failures.md": _failures()}
    index = [f"- [{title}]({name})" for name, title in PAGES.items()]
    lines = {name: ["# " + PAGES[name], "", *text] for name, text in texts.items()}
    lines["index.md"] = ["# Reference", "", "These pages are generated from the code.", "", *index]
    for name, page in lines.items():
        (out / name).write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    return [out / name for name in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _sentence(text: str) -> str:
    text = _cell(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _cli() -> Iterator[str]:
    for name, command in COMMANDS.items():
        parser = parser_of(name, importlib.import_module(command.module))
        yield from (f"## allranks {name}", "", _sentence(command.help), "")
        yield from ("```text", parser.format_usage().strip(), "```", "")
        rows = [row for action in parser._actions for row in _option(action)]
        yield from ("| Option | Default | Description |", "|---|---|---|", *rows, "")
        yield from ("Examples:", "", "```bash")
        yield from (f"allranks {name} {each}".rstrip() for each in EXAMPLES[name])
        yield from ("```", "")


def _option(action: argparse.Action) -> Iterator[str]:
    if action.help == argparse.SUPPRESS:
        return
    shown = action.metavar or (None if action.option_strings else action.dest.upper())
    if action.choices is not None and action.metavar is None:
        shown = ",".join(str(each) for each in action.choices)
    value = f" {shown or action.dest.upper()}" if action.nargs != 0 else ""
    what = ", ".join(action.option_strings) + value
    unset = action.default in (None, False, argparse.SUPPRESS, [], ())
    default = "" if unset else f"`{_cell(str(action.default))}`"
    yield f"| `{_cell(what.strip())}` | {default} | {_sentence(action.help or '')} |"


def _python() -> Iterator[str]:
    for name in allranks._HOMES:
        found = getattr(allranks, name)
        yield from (f"## {name}", "", *_signed(name, found))
        if not inspect.isclass(found) or issubclass(found, BaseException):
            continue
        for method, member in vars(found).items():
            if not method.startswith("_") and inspect.isfunction(member) and member.__doc__:
                yield from (f"### {name}.{method}", "", *_signed(method, member))


def _signed(name: str, found: Any) -> Iterator[str]:
    yield from ("```python", f"{name}{inspect.signature(found)}", "```", "")
    yield from ((inspect.getdoc(found) or "").strip(), "")


def _failures() -> Iterator[str]:
    yield from ("| Cause | Meaning | What to do | Who can fix it |", "|---|---|---|---|")
    for cause, told in TABLE.items():
        row = (f"`{cause}`", _sentence(told.sentence), _sentence(told.fix), str(told.blame))
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/generate.py OUT_DIR")
    write(Path(sys.argv[1]))
