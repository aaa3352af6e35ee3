"""Tags that are marks of one job: its note and its star. Jobs made from it do not get them."""

from __future__ import annotations

from collections.abc import Mapping

# The note is MLflow's, so that its page shows it too.
NOTE, STAR = "mlflow.note.content", "allranks.starred"


def without_marks(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if key not in (NOTE, STAR)}
