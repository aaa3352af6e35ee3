"""Create data assets; data that the server cannot see is uploaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.errors import Problem, SpecError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.paths import placed_data
from allranks.sdk.upload.inputs import How, unproven

if TYPE_CHECKING:
    from allranks.api.assets import CreatedData

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class When(Enum):
    """When local data is uploaded."""

    UNSEEN = auto()
    ALWAYS = auto()
    NEVER = auto()


def create_data(
    data: Mapping[str, Any],
    base: Path,
    labels: Sequence[str] = (),
    how: How | None = None,
    when: When = When.UNSEEN,
) -> CreatedData:
    """Create a version of a data asset; relative paths start at ``base``. Raises as ``upload``,
    SpecError and Conflict."""
    body = placed_data(data, base)
    path = body.get("path")
    with find_server.connect() as client:
        # Before anything is uploaded, and there: pydantic takes longer to import than to be asked.
        client.ask(routes.check_data, body=body)
        if isinstance(path, str) and path.startswith("/"):
            if when is not When.NEVER:
                _require_kind(Path(path), body.get("type"))
            unseen = when is When.UNSEEN and bool(find_server.of_another_home())
            if when is When.ALWAYS or (unseen and unproven(client, [path])):
                body["path"] = (how or How()).upload(path).path
        return client.ask(routes.create_data, body=body, label=labels)


def _require_kind(path: Path, kind: object) -> None:
    """Raises SpecError if a local path is a file instead of a folder, or the other way round."""
    wrong = ("urifile",) if path.is_dir() else ("urifolder", "mltable") if path.is_file() else ()
    # Types are written in several ways: `UriFile`, `uri-file`.
    if re.sub(r"[-_\s]", "", str(kind)).lower() in wrong:
        what, right = ("folder", "uri_folder") if path.is_dir() else ("file", "uri_file")
        hint = f"`{right}`, or leave it out"
        raise SpecError(Problem(f"{path.name} is a {what}, no {kind}", "type", hint=hint))


def name_of(path: Path) -> str:
    """The name of an asset made of a path without another name."""
    return _NOT_IN_NAMES.sub("-", path.absolute().name).strip("-._") or "data"
