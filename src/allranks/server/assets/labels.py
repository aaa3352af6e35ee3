"""Labels of an asset version, as requests give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from allranks.errors import Conflict, UsageError
from allranks.server.arguments import Given
from allranks.store.assets import LATEST

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def labels_of(data: Mapping[str, Any]) -> list[str]:
    """The labels in a body. Raises UsageError for invalid ones, Conflict for reserved ones."""
    labels = data.get("labels")
    if not isinstance(labels, list) or not all(_LABEL.fullmatch(str(label)) for label in labels):
        hint = "use letters, digits, `-`, `_` and `.`"
        raise UsageError(f"{labels!r} are not valid labels", where="labels", hint=hint)
    for label in map(str, labels):
        if label == LATEST:
            hint = f"`@{LATEST}` is always the newest version"
            raise Conflict(f"{label!r} is a reserved label", where="labels", hint=hint)
        if label.isdigit():
            hint = f"a version is written NAME:{label}"
            raise UsageError(f"{label!r} is a version, not a label", where="labels", hint=hint)
    return [str(label) for label in labels]


def _from_query(label: list[str] | None = None) -> list[str]:
    return labels_of({"labels": label or []})


# Labels in a query: `?label=good&label=best`.
Labels = Annotated[list[str], Given(_from_query)]
