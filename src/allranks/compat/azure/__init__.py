"""Answers the imports of programs for Azure ML where Azure's packages are not installed. May import
what allranks offers programs: its root modules and ``sdk``."""

from __future__ import annotations

from typing import Any

from allranks.compat.azure.finder import install


def load_ipython_extension(_: Any) -> None:
    """`%load_ext allranks.azure` in a notebook."""
    install()


__all__ = ["install", "load_ipython_extension"]
