"""Errors on a terminal: one sentence, where, then the hint."""

from __future__ import annotations

import os
import sys

from allranks.errors import AllranksError, SpecError


def print_error(error: AllranksError, as_json: bool = False) -> None:
    """One sentence, where, then the hint; on stdout as JSON when that was asked for."""
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
    bold, red, cyan, off = (
        ("\033[1m", "\033[31m", "\033[36m", "\033[0m") if _colours() else ("",) * 4
    )
    print(f"{bold}{red}error{off}{bold}:{off} {sentence}", file=sys.stderr)
    if hint:
        print(f"\n{bold}{cyan}hint{off}{bold}:{off} {hint}", file=sys.stderr)


def _colours() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ
