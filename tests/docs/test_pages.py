"""How pages read: short paragraphs, tabs and boxes."""

import re
from collections.abc import Iterator
from pathlib import Path

import markdown
import pytest

from docs.tabs import TabsExtension

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("how-to/*.md"))
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
BEGINS = re.compile(r"[-*] |\d+\. |\||#|>")  # a list item, a row, a heading or a box of its own
BOXES = ("> [!NOTE]", "> [!TIP]", "> [!WARNING]")


def _paragraphs(page: str) -> Iterator[str]:
    several: list[str] = []
    for line in (*FENCED.sub("\n", page).splitlines(), ""):
        text = line.strip()
        if not text or BEGINS.match(text):
            yield " ".join(several)
            several = []
        several.append(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_paragraph_has_more_than_80_words(page: Path) -> None:
    long = [each for each in _paragraphs(page.read_text()) if len(each.split()) > 80]
    assert long == []


def test_paragraphs_are_counted_by_themselves() -> None:
    page = "one\ntwo\n\n- three\n  four\n- five\n\n```\nno\n\nno\n```\n| six |\n> seven"
    found = [each for each in _paragraphs(page) if each]
    assert found == ["one two", "- three four", "- five", "| six |", "> seven"]


def test_labels_and_the_blocks_below_them_become_tabs() -> None:
    text = "**File**\n\n```yaml\na: 1\n\n**Python**\n```\n\n**Python**\n\n```\nb\n```\n\nAfter."
    more = ["pymdownx.superfences", "pymdownx.tabbed"]
    page = markdown.markdown(text, extensions=[*more, TabsExtension()])
    assert re.findall("<label.*?>(.*?)</label>", page) == ["File", "Python"]
    assert page.endswith("</div>\n<p>After.</p>")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_boxes_are_those_that_code_hosts_know(page: Path) -> None:
    quotes = re.findall(r"(?<=\n\n)>.*", page.read_text())
    assert [line for line in quotes if line not in BOXES] == []
