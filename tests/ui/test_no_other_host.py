"""No page, script, style or picture of the page names another host."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import allranks.ui
from allranks.ui.app import _compressed_plotly

UI = Path(allranks.ui.__file__).parent
FILES = sorted(path for path in UI.rglob("*") if path.suffix in (".js", ".css", ".svg", ".html"))
# Names of kinds of XML, which nobody loads.
NAMES = re.compile(r"https?://www\.w3\.org/(2000|1999|1998|XML)[\w/]*")
OTHER_HOST = re.compile(r"\b(https?|wss?):/*[\w%]|[\"'(=]//[\w-]+\.\w")


def test_the_patterns_see_other_hosts() -> None:
    for text in ("https://a.b", 'src="//a.b/c"', "url(//fonts.a)", "ws://a"):
        assert OTHER_HOST.search(text), text
    assert not OTHER_HOST.search("// a comment")


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_files_of_the_page(file: Path) -> None:
    assert not OTHER_HOST.findall(NAMES.sub("", file.read_text()))


@pytest.mark.medium
def test_the_chart_library() -> None:
    script = gzip.decompress(_compressed_plotly()).decode()
    assert len(script) > 1_000_000
    assert not re.findall(r"(?:https?|wss?)://[\w.-]+", NAMES.sub("", script))
