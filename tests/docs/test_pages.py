"""How pages read: short paragraphs, tabs and boxes."""

import ast
import importlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import markdown
import pytest
import yaml

from allranks import load_job
from allranks.cli.parser import parser_of
from allranks.cli.submit.run import spec_of
from allranks.spec.datastore import Datastore
from allranks.spec.endpoint import Deployment
from allranks.spec.schedule import Schedule
from docs.tabs import TabsExtension

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("how-to/*.md"))
OTHERS = sorted([*DOCS.glob("*.md"), *DOCS.glob("guides/*.md"), *DOCS.glob("explanation/*.md")])
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


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
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


def test_the_navigation_has_each_page_once() -> None:
    config = (DOCS.parent / "mkdocs.yml").read_text()
    pages = re.findall(r"([\w/-]+\.md)$", config.split("\nnav:\n")[1], re.MULTILINE)
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    written = {page for page in there if not page.startswith(("design/", "reference/"))}
    named = [page for page in pages if not page.startswith("reference/")]
    assert sorted(named) == sorted(written)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_boxes_are_those_that_code_hosts_know(page: Path) -> None:
    quotes = re.findall(r"(?<=\n\n)>.*", page.read_text())
    assert [line for line in quotes if line not in BOXES] == []


# What a page shows in a tab: the label, the language, and the block.
TAB = re.compile(r"^\*\*(Command line|File|Python)\*\*\n\n```(\w+)\n(.*?)^```$", re.M | re.S)
TABS = [
    pytest.param(label, text, id=f"{page.stem}-{label}-{number}")
    for page in PAGES
    for number, (label, _, text) in enumerate(TAB.findall(page.read_text()))
]


@pytest.mark.parametrize(("label", "text"), TABS)
def test_what_a_tab_shows_is_valid(label: str, text: str) -> None:
    {"Command line": _check_lines, "File": _check_file, "Python": _check_program}[label](text)


def _check_lines(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "allranks"
        name = " ".join(words[1:3]) if words[1] not in ("run",) else "run"
        parser_of(name).parse_args(words[1 + len(name.split()) :])


def _check_file(text: str) -> None:
    keys = yaml.safe_load(text)
    if "trigger" in keys:
        Schedule.model_validate({**keys, "create_job": {"command": "true"}})
    elif "endpoint_name" in keys:
        Deployment.model_validate(keys)
    elif "container_name" in keys:
        assert keys.pop("credentials")  # kept apart
        Datastore.model_validate(keys)
    else:
        load_job(io.StringIO(text))


def _check_program(text: str) -> None:
    """Each name that it imports from allranks is there; it is no file that could be run here."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("allranks"):
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


@pytest.mark.parametrize("page", ["gpus", "hangs", "metrics", "resume", "run"])
def test_the_three_ways_of_a_page_make_one_job(page: str) -> None:
    (_, line), (_, file), (_, program) = [
        (label, text) for label, _, text in TAB.findall((DOCS / f"how-to/{page}.md").read_text())
    ][:3]
    words = ["-n", "1", "-p", "1", "-C", ".", *shlex.split(line)[2:]]
    spec = spec_of(parser_of("run").parse_args(words))
    names: dict[str, object] = {}
    exec(program.partition("client = ")[0], names)
    loaded = load_job(io.StringIO(file))
    assert loaded == names["job"]
    assert loaded == load_job(io.StringIO(yaml.safe_dump(spec)))


PICTURES = sorted([*DOCS.glob("*.svg"), *DOCS.glob("how-to/*.svg"), *DOCS.glob("how-to/*.png")])


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_shown_and_made_by_a_script(picture: Path) -> None:
    assert picture.stat().st_size < 60_000
    pages = [page for page in picture.parent.glob("*.md") if picture.name in page.read_text()]
    assert pages
    name = str(picture.relative_to(DOCS).with_suffix(""))
    scripts = ("picture.py", "screenshots.py")
    assert any(f'"{name}"' in (DOCS.parent / "scripts" / each).read_text() for each in scripts)
    if picture.suffix == ".svg":  # no folder of whoever recorded it
        assert not re.search(r"(?<!\w)/(?:work|root|tmp|home)/", picture.read_text())
