"""Requests and answers of a scoring server, without HTTP."""

from __future__ import annotations

import json
import math
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
        except (ValueError, RecursionError) as error:
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


def dumps(value: Any) -> str:
    """As JSON, which has no NaN and no infinite numbers: they become null. Raises TypeError and
    ValueError."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_finite(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def as_json(value: Any, status: int = 200) -> Answer:
    """Raises TypeError for what JSON cannot hold, with a way out."""
    try:
        return Answer(status, dumps(value).encode())
    except (TypeError, ValueError, RecursionError) as error:
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
