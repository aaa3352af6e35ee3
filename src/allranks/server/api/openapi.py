"""The description of people's routes, in the format of OpenAPI."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response
from starlette.routing import compile_path

from allranks.server.api.endpoint import Endpoint
from allranks.server.arguments import REQUIRED, Argument, Signature, Source
from allranks.server.http.content import LINES, Content
from allranks.version import __version__

_JSON = "application/json"
_ERROR = {"description": "An error: JSON with `error`, `message`, `where` and `hint`"}
_REFERENCE = "#/components/schemas/{model}"

# Schemas that others refer to, by name.
Shared = dict[str, Any]


def description(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """All routes with their arguments and answers. Imports the modules of all routes."""
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    shared: Shared = {}
    for endpoint in endpoints:
        path = compile_path(endpoint.row.path)[1]  # without the types of its parameters
        paths[path][endpoint.row.method.lower()] = _operation(endpoint, shared)
    return {
        "openapi": "3.1.0",
        "info": {"title": "allranks", "version": __version__},
        "paths": paths,
        "components": {"schemas": shared},
    }


def _operation(endpoint: Endpoint, shared: Shared) -> dict[str, Any]:
    function = endpoint.signature().function
    arguments = [*_flat(endpoint.signature())]
    operation: dict[str, Any] = {
        "summary": function.__name__.replace("_", " "),
        "operationId": endpoint.row.address.replace(" ", "_"),
        "parameters": [*_parameters(endpoint.row.path, arguments, shared)],
        "responses": {str(endpoint.row.status): _answer(function, shared), "default": _ERROR},
    }
    if text := inspect.getdoc(function):
        operation["description"] = text
    for argument in arguments:
        if argument.source is Source.BODY:
            content = {_JSON: {"schema": _schema(argument.type, shared)}}
            operation["requestBody"] = {
                "required": argument.default is REQUIRED,
                "content": content,
            }
    return operation


def _flat(signature: Signature) -> Iterator[Argument]:
    """The arguments of a function, and of those that make some of them."""
    for argument in signature.arguments:
        if argument.given is not None:
            yield from _flat(argument.given)
        else:
            yield argument


def _parameters(
    path: str, arguments: Iterable[Argument], shared: Shared
) -> Iterator[dict[str, Any]]:
    for name in compile_path(path)[2]:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for argument in arguments:
        if argument.source is Source.QUERY:
            required, schema = argument.default is REQUIRED, _schema(argument.type, shared)
            yield {"name": argument.name, "in": "query", "required": required, "schema": schema}
        elif argument.source is Source.WHOLE_QUERY:
            model: type[BaseModel] = get_args(argument.type)[0]
            for name, schema in model.model_json_schema()["properties"].items():
                yield {"name": name, "in": "query", "required": False, "schema": schema}


def _answer(function: Any, shared: Shared) -> dict[str, Any]:
    hint = get_type_hints(function, include_extras=True)["return"]
    content = Content(hint)
    if get_origin(hint) is Annotated:
        content = next(mark for mark in get_args(hint) if isinstance(mark, Content))
    elif isinstance(hint, type) and issubclass(hint, Response | type(None)):
        return {"description": "Done"}
    schema = _schema(content.type, shared)
    what = "Lines of JSON" if content.media_type == LINES else "JSON"
    return {"description": what, "content": {content.media_type: {"schema": schema}}}


def _schema(hint: Any, shared: Shared) -> dict[str, Any]:
    schema = TypeAdapter(hint).json_schema(ref_template=_REFERENCE)
    shared |= schema.pop("$defs", {})
    return schema
