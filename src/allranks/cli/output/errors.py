"""Print errors: location, message, hint."""

from __future__ import annotations

import sys

from allranks.cli.output import colours
from allranks.errors import AllranksError, SpecError


def print_error(error: AllranksError, as_json: bool = False) -> None:
    """Print location, message and hint to stderr, or JSON to stdout."""
    if as_json:
        import json  # lazy: only here

        print(json.dumps(error.body()))
        return
    if isinstance(error, SpecError):
        for problem in error.problems:
            _print_error(problem.located(error.file), problem.hint)
        return
    _print_error(str(error), error.hint)


def _print_error(sentence: str, hint: str | None) -> None:
    lines = [f"error: {sentence}", *(["", f"hint: {hint}"] if hint else [])]
    if colours.coloured(sys.stderr):
        lines = [colours.sentence(each) for each in lines]
    print("\n".join(lines), file=sys.stderr)
