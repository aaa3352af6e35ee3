"""What people and jobs write as Markdown costs the page's process little."""

import time

import pytest

from allranks.ui.markdown import LONGEST, markdown

MARKS = ("![", "[", "[a](", "*_", "`", "> ", "- ", "a|b\n-|-\n", "[![", "<a ", "~~a")


@pytest.mark.slow
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("end", ["", "\n"])
def test_no_text_holds_up_the_page(mark: str, end: str) -> None:
    markdown("x")
    began = time.process_time()
    markdown((mark + end) * (2 * LONGEST // len(mark + end)))
    assert time.process_time() - began < 4.0


def test_what_costs_too_much_is_shown_as_it_was_written() -> None:
    assert markdown("![<" * 6000).startswith('<pre tabindex="0">![&lt;![')
    assert "<a href" in markdown("[a](/b) " * 4000)
