"""The table of causes in the docs is the one that the product has."""

import os
from pathlib import Path

from allranks.plan.diagnosis.causes import TABLE, Cause

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "failures.md"
AGAIN = {True: "yes", False: "no", None: "perhaps"}


def test_the_table_of_causes():
    """`UPDATE_GOLDEN=1 pytest tests/docs` writes it anew."""
    head, mark, _ = PAGE.read_text().partition("| cause | what happened | what to do | again? |\n")
    rows = [
        f"| `{each}` | {told.sentence} | {told.fix} | {AGAIN[told.retryable]} |"
        for each, told in ((each, TABLE[each]) for each in Cause)
    ]
    whole = head + mark + "\n".join(["|---|---|---|---|", *rows]) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(whole)
    assert PAGE.read_text() == whole
