"""The design pages name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p.name for p in (ROOT / "src/allranks").iterdir() if p.is_dir())
NAMED = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w/]+\.(?:py|sh))`")
PAGES = [*sorted((ROOT / "docs/design").glob("*.md")), ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / "src/allranks" / name).exists()] == []


def test_the_overview_says_where_to_change_what() -> None:
    assert len(NAMED.findall(PAGES[0].with_name("README.md").read_text(encoding="utf-8"))) >= 25
