"""Tabs of the site, written as plain Markdown: a label in bold, and the blocks right below it.

    **Command line**

    ```bash
    allranks run -n 2 -- python train.py
    ```

    **Python**

    ```python
    …
    ```

On a code host this reads as what it is. The site shows labels that follow one another as tabs.
An extension of Python-Markdown, which `mkdocs.yml` names.
"""

import re

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

# The same on all pages, so that a reader's choice holds on the next one.
LABEL = re.compile(r"\*\*(Command line|File|Python)\*\*")
FENCE = re.compile(r"```+|~~~+")


class Tabs(Preprocessor):
    """Write labels and their blocks as `pymdownx.tabbed` reads them: indented, below a title."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        fence = ""  # what ends the block of code that a line is in
        in_tab = False
        for line in lines:
            label = None if fence else LABEL.fullmatch(line)
            if label:
                in_tab = True
                out.append(f'=== "{label[1]}"')
                continue
            begins = None if fence else FENCE.match(line)
            if begins:
                fence = begins[0]
            elif fence:
                fence = "" if line.strip() == fence else fence
            elif line.strip():
                in_tab = False
            out.append("    " + line if in_tab and line.strip() else line)
        return out


class TabsExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # After white space is normalized (30), before blocks of code are taken out (25).
        md.preprocessors.register(Tabs(md), "tabs", 27)


def makeExtension(**options: object) -> TabsExtension:
    return TabsExtension(**options)
