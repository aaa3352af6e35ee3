"""What is in a response that a route makes by itself, for the description of the API."""

from __future__ import annotations

from typing import Any, NamedTuple

LINES = "application/x-ndjson"


class Content(NamedTuple):
    """Marks a route's response: `Annotated[Response, Content(list[str])]`. Of `LINES`, ``type`` is
    that of each line."""

    type: Any
    media_type: str = "application/json"
