"""Requests and answers of a scoring server, without HTTP."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, NamedTuple, Tuple

JSON = "application/json"


class Request(NamedTuple):
    """``headers`` by their lower-case names."""

    method: str
    path: str
    query: str
    headers: Dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body. Raises BadRequest."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise BadRequest("the body is no JSON: %s" % error) from None


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    headers: Tuple[Tuple[str, str], ...] = ()


class BadRequest(Exception):
    """The caller's mistake: status 400."""


# Answers the requests of one path.
Score = Callable[[Request], Answer]


def as_json(value: Any, status: int = 200) -> Answer:
    """Raises TypeError for what JSON cannot hold, with a way out."""
    try:
        return Answer(status, json.dumps(value).encode())
    except (TypeError, ValueError) as error:
        how = "return lists, numbers and text, as with .tolist()"
        raise TypeError("run() returned what JSON cannot hold (%s): %s" % (error, how)) from None


def plain(value: Any) -> Any:
    """A prediction as lists and numbers: of numpy, pandas and torch."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict(orient="records")
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
