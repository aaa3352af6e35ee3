"""Print an answer as az does: `--query` in JMESPath, `-o json|tsv|table|yaml|none`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from allranks.cli.output import show
from allranks.errors import UsageError

# Controls of 8 bits and of the direction of text; json.dumps escapes the others.
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def print_answer(answer: Any, output: str, query: str) -> None:
    """Raises UsageError for a query that is none."""
    if query:
        answer = _search(answer, query)
        if answer is None and output in ("tsv", "none"):
            return
    if output in ("json", "jsonc"):
        text = json.dumps(answer, indent=2, ensure_ascii=False)
        print(_STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    elif output in ("yaml", "yamlc"):
        import yaml  # lazy: only for this output

        text = yaml.safe_dump(answer, sort_keys=False, allow_unicode=True)
        print("\n".join(show.safe_lines(text)), end="")
    elif output == "tsv":
        for row in answer if isinstance(answer, list) else [answer]:
            print("\t".join(map(show.one_line, _tabbed(row).split("\t"))))
    elif output == "table":
        _table([*answer] if isinstance(answer, list) else [answer])


def check_query(query: str) -> None:
    """Raise UsageError for a query that is none, before anything is done."""
    import jmespath  # lazy: only with --query
    from jmespath.exceptions import JMESPathError

    try:
        jmespath.compile(query)
    except JMESPathError as error:
        raise _no_query(query, error) from None


def _search(answer: Any, query: str) -> Any:
    import jmespath  # lazy: only with --query
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.search(query, answer)
    except JMESPathError as error:
        raise _no_query(query, error) from None


def _no_query(query: str, error: Exception) -> UsageError:
    text = str(error).splitlines()[0]
    hint = "as az takes it: --query name, --query '[].{name: name, status: status}'"
    return UsageError(f"{query!r} is not a query: {text}", where="--query", hint=hint)


def _tabbed(row: Any) -> str:
    if isinstance(row, Mapping):
        return "\t".join(_cell(each) for each in row.values())
    return "\t".join(map(_cell, row)) if isinstance(row, list) else _cell(row)


def _cell(value: Any) -> str:
    """A value in a table: nested ones are left out, as az does."""
    if isinstance(value, bool):
        return str(value)
    if value is None or isinstance(value, Mapping | list):
        return "" if value is None or isinstance(value, Mapping) else str(len(value))
    return str(value)


def _table(rows: list[Any]) -> None:
    several = [row if isinstance(row, Mapping) else {"Result": row} for row in rows]
    keys = [
        key
        for key in dict.fromkeys(key for row in several for key in row)
        if not any(isinstance(row.get(key), Mapping | list) for row in several)
    ]
    if keys:
        show.columns(keys, [[_cell(row.get(key)) for key in keys] for row in several])
