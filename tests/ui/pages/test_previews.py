"""What is shown of files that jobs left."""

import json

from allranks.ui.markdown import LONGEST, markdown
from allranks.ui.pages.previews import of_text


def test_a_notebook_has_the_markdown_of_one_text():
    cells = [
        {"cell_type": "markdown", "source": text} for text in (["# a\n", "b"], "[" * LONGEST, "c")
    ]
    shown = of_text("ipynb", json.dumps({"cells": cells}), cut=False)
    assert [cell["kind"] for cell in shown["cells"]] == ["markdown", "code", "markdown"]


def test_numbers_stand_right():
    table = of_text("csv", "id,name,score,\n1,7 up,0.5,\n2,b,nan\n3,c,,\n", cut=False)
    assert table["numbers"] == [0, 2]
    assert of_text("csv", "", cut=False)["numbers"] == []


def test_columns_of_markdown_are_aligned_without_inline_styles():
    shown = markdown("| a | b |\n|---|--:|\n| 1 | 2 |\n")
    assert '<td class="right">2</td>' in shown
    assert "style" not in shown
