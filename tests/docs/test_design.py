"""The design pages and CONTRIBUTING.md name files and folders that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p.name for p in (ROOT / "src/allranks").iterdir() if p.is_dir())
NAMED = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w/]+\.(?:py|sh))`")
# A path of the checkout, also in a block of commands: `tests/core`, `scripts/sizes.py`.
IN_CHECKOUT = re.compile(
    r"(?<![\w./-])((?:tests|scripts|docs|bench|examples|src)/[\w./{},-]*[\w/])"
)
EXAMPLES = ("docs/reference", "tests/cli/test_NAME.py")  # built, not committed; a placeholder
PAGES = [*sorted((ROOT / "docs/design").glob("*.md")), ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / "src/allranks" / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_the_checkout_that_a_page_names_exists(page: Path) -> None:
    named = set(IN_CHECKOUT.findall(page.read_text(encoding="utf-8"))).difference(EXAMPLES)
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_layers_of_contributing_are_those_that_are_checked() -> None:
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    checked = config.split('name = "imports point down (docs/design)"')[1].split("]\n")[0]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = text.split("## Layers")[1].split("```")[1]
    names = re.findall(r"\(allranks\.([\w.]+)\)", checked)
    assert [name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}\b", drawn)] == []


# Rows of the pages "the way of …": the process, then a file and a function in it.
STATION = re.compile(r"^\|[^|]*\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
WAYS = [page for page in PAGES if page.name.startswith("way-of-")]


def _functions(node: ast.AST, above: str = "") -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield above + each.name
            yield from _functions(each, f"{above}{each.name}.")


@pytest.mark.parametrize("page", WAYS, ids=lambda page: page.stem)
def test_every_function_on_a_way_is_in_its_file(page: Path) -> None:
    stations = STATION.findall(page.read_text(encoding="utf-8"))
    assert len(stations) >= 10
    for file, function in stations:
        source = (ROOT / "src/allranks" / file).read_text(encoding="utf-8")
        assert function in _functions(ast.parse(source)), f"{file}: no {function}"


def test_the_overview_says_where_to_change_what() -> None:
    assert len(NAMED.findall(PAGES[0].with_name("README.md").read_text(encoding="utf-8"))) >= 25


def test_the_words_of_the_glossary_are_in_use() -> None:
    glossary = PAGES[-1].read_text(encoding="utf-8").split("## Glossary")[1]
    words = [word.lower() for word in re.findall(r"^\| (.+?) \| [A-Z]", glossary, re.MULTILINE)]
    assert words == sorted(words)
    files = [*(ROOT / "src/allranks").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files).lower()
    assert [word for word in words if not re.search(rf"\b{word}|_{word}", text)] == []
