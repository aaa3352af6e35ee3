"""Names of Azure ML's first SDK, which may be any text, as names of inputs, outputs and steps."""

from __future__ import annotations

import re
from collections.abc import Container


def identifier(text: str) -> str:
    """The text as a name. `azureml_run` in jobs has a copy."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_").lower() or "data"
    return f"_{name}" if name[0].isdigit() else name


def matching(text: str, names: Container[str]) -> str | None:
    """The one of ``names`` that a text means, or None."""
    return next((name for name in (text, identifier(text)) if name in names), None)
