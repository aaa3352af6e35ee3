"""Print errors: location, message, hint."""

from __future__ import annotations

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
    from allranks.cli.output import show  # lazy: only here

    show.talk(f"error: {sentence}" + (f"\n\nhint: {hint}" if hint else ""))
