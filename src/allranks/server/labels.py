"""Labels, as a request gives them to a version of something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allranks.errors import UsageError

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def labels_of(data: Mapping[str, Any]) -> list[str]:
    """Raises UsageError for what can be none."""
    labels = data.get("labels")
    if not isinstance(labels, list) or not all(_LABEL.fullmatch(str(each)) for each in labels):
        hint = "one or more words of letters, digits, `-`, `_` and `.`"
        raise UsageError(f"{labels!r} are no labels", where="labels", hint=hint)
    return [str(each) for each in labels]
