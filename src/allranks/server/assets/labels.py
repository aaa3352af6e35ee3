"""Labels, as a request gives them to a version of something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Query

from allranks.errors import Conflict, UsageError
from allranks.store.assets import LATEST

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def labels_of(data: Mapping[str, Any]) -> list[str]:
    """Raises UsageError for what can be none."""
    labels = data.get("labels")
    if not isinstance(labels, list) or not all(_LABEL.fullmatch(str(each)) for each in labels):
        hint = "one or more words of letters, digits, `-`, `_` and `.`"
        raise UsageError(f"{labels!r} are no labels", where="labels", hint=hint)
    for each in map(str, labels):
        if each == LATEST:
            hint = f"`@{LATEST}` is always the newest version"
            raise Conflict(f"{each!r} is no label to give", where="labels", hint=hint)
        if each.isdigit():
            hint = f"of a version it is written NAME:{each}"
            raise UsageError(f"{each!r} is no label but a version", where="labels", hint=hint)
    return [str(each) for each in labels]


def _asked(label: Annotated[list[str] | None, Query()] = None) -> list[str]:
    return labels_of({"labels": label or []})


# Those of an address: `?label=good&label=best`.
Labels = Annotated[list[str], Depends(_asked)]
