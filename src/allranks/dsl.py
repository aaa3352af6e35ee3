"""The names of ``azure.ai.ml.dsl``: pipelines as Python functions."""

from __future__ import annotations

from allranks.sdk.pipelines.decorator import pipeline

__all__ = ["pipeline"]
