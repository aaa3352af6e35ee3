"""The environment of a deployment that names none: that of its model."""

from __future__ import annotations

import contextlib
from typing import Any

from allranks.core.environments import of_model
from allranks.errors import Conflict, NotFound
from allranks.server.dependencies import Services
from allranks.store.assets import AssetRow


def environment_of(row: AssetRow, has_script: bool, services: Services) -> Any:
    """The environment of a registered model: what MLflow wrote beside it, else that of the job that
    left it, unless a script says what it needs; None: the current Python."""
    models = services.models.versions
    entries = {entry.path: entry.size for entry in models.manifest(row)}
    folder = of_model.folder_of([*entries])
    if folder is not None:
        texts = {
            name: (models.files(row) / folder / name).read_text("utf-8", "replace")
            for name in of_model.FILES
            if 0 < entries.get(folder + name, 0) <= of_model.LARGEST
        }
        own = of_model.environment_of(texts, f"{row.name}:{row.version}")
        if own is not None:
            return own
    elif has_script:
        return None
    with contextlib.suppress(NotFound, Conflict):
        return services.records.get(str(row.spec.get("job") or "")).spec.get("environment")
    return None


def with_environment(job: dict[str, Any], environment: Any) -> dict[str, Any]:
    """A job with that environment, or with the current Python."""
    rest = {key: value for key, value in job.items() if key != "environment"}
    return rest if environment is None else {**rest, "environment": environment}


def note_on(job: Any) -> list[str]:
    """Where the environment of a replica or a step is from, if it is a model's."""
    environment = job.get("environment")
    about = environment.get("description") if isinstance(environment, dict) else None
    is_models = about and environment.get("nearest_python")
    return [f"the environment is that of {about}"] if is_models else []
