"""The arguments of a route's function, read from a request as the function's signature says.

An argument is the request, the result of a `Given` function, the `BODY`, the whole `QUERY`, a
parameter of the path, or else one of the query. Each is validated by pydantic.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from allranks.errors import UsageError
from allranks.spec.fields.problems import problems

SEE = "the server's /openapi.json describes its routes"
# Invalid values beyond which none is described: a million of them take ten seconds, and gigabytes.
_MOST_ERRORS = 1000
# The default of an argument that has none.
REQUIRED: Any = inspect.Parameter.empty


class Source(Enum):
    """Where an argument comes from."""

    REQUEST = auto()
    GIVEN = auto()
    PATH = auto()
    QUERY = auto()
    WHOLE_QUERY = auto()
    BODY = auto()


# Marks of arguments, as in `Annotated[dict[str, Any], BODY]`. A model without a mark is the body.
BODY, QUERY = Source.BODY, Source.WHOLE_QUERY


class Given(NamedTuple):
    """Marks an argument that a function makes, whose own arguments are read in the same way."""

    function: Callable[..., Any]


class Argument(NamedTuple):
    """``several``: each occurrence in the query is one element. ``given``: of a `Given` function,
    its signature."""

    name: str
    source: Source
    type: Any
    default: Any
    several: bool
    validate: Callable[[Any], Any]
    given: Signature | None


class Signature(NamedTuple):
    """A function with its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Argument, ...]

    @property
    def takes_body(self) -> bool:
        return any(argument.source is BODY for argument in self.arguments)

    def call(self, request: Request, body: bytes) -> Any:
        """Call the function. Raises UsageError for arguments that are missing or invalid."""
        return self.function(
            **{argument.name: _value(argument, request, body) for argument in self.arguments}
        )


def signature(function: Callable[..., Any], path: str) -> Signature:
    """The signature of the function of a route with that path."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    arguments = (_argument(parameter, hints[parameter.name], path) for parameter in parameters)
    return Signature(function, tuple(arguments))


def _argument(parameter: inspect.Parameter, hint: Any, path: str) -> Argument:
    name, marks = parameter.name, get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    mark = next((each for each in marks if isinstance(each, Source | Given)), None)
    nested = signature(mark.function, path) if isinstance(mark, Given) else None
    source = Source.GIVEN if nested else mark if isinstance(mark, Source) else None
    if source is None:
        source = _source(name, hint, path)
    read = source not in (Source.REQUEST, Source.GIVEN)
    validate = TypeAdapter(hint).validate_python if read else _unread
    return Argument(name, source, hint, parameter.default, _is_list(hint), validate, nested)


def _unread(value: Any) -> Any:
    raise AssertionError("not an argument that a request has as text")


def _source(name: str, hint: Any, path: str) -> Source:
    """The source of an argument without a mark."""
    if hint is Request:
        return Source.REQUEST
    if _is_model(hint):
        return Source.BODY
    return Source.PATH if f"{{{name}}}" in path else Source.QUERY


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _is_list(hint: Any) -> bool:
    """Whether the type is a list, or a list or None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return any(map(_is_list, get_args(hint)))
    return get_origin(hint) is list


def _value(argument: Argument, request: Request, body: bytes) -> Any:
    match argument.source:
        case Source.REQUEST:
            return request
        case Source.GIVEN:
            assert argument.given is not None
            return argument.given.call(request, body)
        case Source.PATH:
            return _valid(argument, request.path_params[argument.name], argument.name)
        case Source.WHOLE_QUERY:
            return _valid(argument, _whole_query(argument.type, request), "")
        case Source.BODY:
            value = _parsed(body)
            where = ""
        case Source.QUERY:
            value = _from_query(request, argument.name, argument.several)
            where = argument.name
    if value is not None:
        return _valid(argument, value, where)
    if argument.default is REQUIRED:
        message = f"`{where}` is required" if where else "the request has no body"
        raise UsageError(message, where=where, hint=SEE)
    return argument.default


def _from_query(request: Request, name: str, several: bool) -> Any:
    """The text, or the list of texts, of that name; None if the query has none."""
    return request.query_params.getlist(name) or None if several else request.query_params.get(name)


def _whole_query(hint: Any, request: Request) -> Mapping[str, Any]:
    model: type[BaseModel] = get_args(hint)[0]
    values = {
        name: _from_query(request, name, _is_list(field.annotation))
        for name, field in model.model_fields.items()
    }
    return {name: value for name, value in values.items() if value is not None}


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg.lower()} at character {error.pos}"
        raise UsageError(message, where="body", hint=SEE) from error


def _valid(argument: Argument, value: Any, where: str) -> Any:
    try:
        return argument.validate(value)
    except ValidationError as error:
        if (count := error.error_count()) > _MOST_ERRORS:
            raise UsageError(f"{count} of its values are invalid", where=where, hint=SEE) from None
        # A model lists its keys; a value without a name has no key.
        models = {"": (argument.type,)} if _is_model(argument.type) else {}
        first = problems(error, value, models)[0]
        place = ".".join(filter(None, (where, first.where)))
        hint = f"{first.hint}; {SEE}" if first.where else SEE
        raise UsageError(first.message, where=place, hint=hint) from error
