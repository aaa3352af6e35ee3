"""What is shown of files that jobs left."""

import json

from allranks.ui.markdown import LONGEST
from allranks.ui.pages.previews import of_text


def test_a_notebook_has_the_markdown_of_one_text():
    cells = [
        {"cell_type": "markdown", "source": text} for text in (["# a\n", "b"], "[" * LONGEST, "c")
    ]
    shown = of_text("ipynb", json.dumps({"cells": cells}), cut=False)
    assert [cell["kind"] for cell in shown["cells"]] == ["markdown", "code", "markdown"]
