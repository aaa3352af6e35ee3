"""Markdown of people and jobs as HTML. HTML in it is shown as text, and no link runs a script."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# Characters that are read, and opening brackets, for each of which the parser may read on to the
# end: it runs in the page's process.
LONGEST, _MOST_BRACKETS = 100_000, 5_000


def markdown(text: str) -> Markup:
    """The text as HTML. Its headings go below an `h2`, and skip no level."""
    parser, text = _parser(), text[:LONGEST]
    if text.count("[") > _MOST_BRACKETS:
        return Markup('<pre tabindex="0">{}</pre>').format(text)
    tokens, level = parser.parse(text), 2
    for token in tokens:
        if token.type == "heading_open":
            level = min(6, level + 1, int(token.tag[1]) + 2)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{level}"
        # The page's policy refuses inline styles.
        if style := token.attrs.pop("style", None):
            token.attrSet("class", str(style).removeprefix("text-align:"))
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # lazy: few pages have any

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # The page's policy loads no pictures of other servers.
    parser.disable("image")
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("fence", _code)
    parser.add_render_rule("code_block", _code)
    return parser


def _link(renderer: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, at, options, env))


def _code(renderer: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """A block that scrolls can be reached by the keyboard."""
    return Markup('<pre tabindex="0">{}</pre>').format(tokens[at].content)
