"""The generated reference: complete, described, and its links resolve."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import allranks
from allranks.cli.commands import COMMANDS
from allranks.plan.diagnosis.causes import TABLE

_GENERATE = Path(__file__).parents[2] / "docs" / "generate.py"


def _pages(out: Path) -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", _GENERATE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {path.name: path.read_text() for path in module.write(out)}


def test_every_command_public_name_and_cause_has_an_entry(tmp_path: Path) -> None:
    pages = _pages(tmp_path)
    headings = re.findall(r"^## (.*)$", pages["cli.md"], re.MULTILINE)
    assert headings == [f"allranks {name}" for name in COMMANDS]
    names = re.findall(r"^## (.*)$", pages["python.md"], re.MULTILINE)
    assert names == [name for name in allranks.__all__ if name != "__version__"]
    assert all(f"| `{cause}` |" in pages["failures.md"] for cause in TABLE)


def test_every_row_of_a_table_has_a_description(tmp_path: Path) -> None:
    pages = _pages(tmp_path)
    rows = [
        line
        for name in ("cli.md", "failures.md")
        for line in pages[name].splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > len(COMMANDS)
    assert [row for row in rows if re.search(r"\|\s*\.?\s*\|$", row)] == []


def test_links_resolve(tmp_path: Path) -> None:
    for text in _pages(tmp_path).values():
        for target in re.findall(r"\]\(([^)#]+)", text):
            assert target.startswith("https://") or (tmp_path / target).is_file()
