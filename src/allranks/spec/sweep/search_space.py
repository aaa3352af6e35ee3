"""The search space of a sweep: how each parameter of its trials is drawn.

Names and keys are Azure ML v2's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from allranks.spec.fields.base import Part
from allranks.spec.fields.scalars import Count, Real, Whole, Wrong

Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _plain_values(value: object) -> object:
    """A value of a choice as it reaches the command: text, a number or a nested space."""
    if not isinstance(value, list | tuple):
        return value
    if not value:
        raise Wrong("must hold at least one value", "write `values: [16, 32]`")
    for item in value:
        if isinstance(item, bool):
            word = str(item).lower()
            raise Wrong(f"must not hold the truth value `{word}`", f"quote it: `'{word}'`")
        if not isinstance(item, str | int | float | dict):
            raise Wrong("must hold text, numbers or mappings", "write `values: [16, 32]`")
    return [_unwritten(item) for item in value]


def _unwritten(value: Any) -> Any:
    if isinstance(value, Whole):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def _lower(value: object) -> object:
    """The mapping with its ``type`` in lower case: `Uniform` is `uniform`."""
    if isinstance(value, Mapping) and isinstance(value.get("type"), str):
        return {**value, "type": value["type"].lower()}
    return value


class _InOrder(Part):
    """Its values may be given in their order, as azure.ai.ml takes them: ``Uniform(0.1, 0.9)``,
    ``Choice([16, 32])``."""

    if TYPE_CHECKING:

        def __init__(self, *values: Any, **keywords: Any) -> None: ...

    @classmethod
    def by_position(cls, values: Sequence[Any]) -> dict[str, Any]:
        """Values by the names of the fields that they are for. Raises TypeError."""
        names = [name for name in cls.model_fields if name != "type"]
        if len(values) > len(names):
            raise TypeError(f"{cls.__name__} takes {len(names)} values, not {len(values)}")
        return dict(zip(names, values, strict=False))


class Choice(_InOrder):
    """One of ``values``. A value that is a mapping is a space of its own: its parameters exist only
    in the trials that draw it."""

    type: Literal["choice"] = "choice"
    values: Annotated[tuple[Any, ...], BeforeValidator(_plain_values)]


class Uniform(_InOrder):
    """A number between two bounds."""

    type: Literal["uniform"] = "uniform"
    min_value: Number
    max_value: Number

    @model_validator(mode="after")
    def _in_order(self) -> Uniform:
        if self.min_value > self.max_value:
            message = (
                f"`min_value` ({self.min_value:g}) is more than `max_value` ({self.max_value:g})"
            )
            raise Wrong(message, "exchange the two")
        return self


class LogUniform(Uniform):
    """``exp`` of a number between two bounds: the bounds are logarithms."""

    type: Literal["loguniform"] = "loguniform"  # type: ignore[assignment]


class QUniform(Uniform):
    """``uniform``, rounded to a multiple of ``q``."""

    type: Literal["quniform"] = "quniform"  # type: ignore[assignment]
    q: Positive


class QLogUniform(Uniform):
    """``loguniform``, rounded to a multiple of ``q``."""

    type: Literal["qloguniform"] = "qloguniform"  # type: ignore[assignment]
    q: Positive


class Normal(_InOrder):
    """A number from the normal distribution with the mean ``mu`` and the deviation ``sigma``."""

    type: Literal["normal"] = "normal"
    mu: Number
    sigma: Positive


class LogNormal(Normal):
    """``exp`` of a number from a normal distribution."""

    type: Literal["lognormal"] = "lognormal"  # type: ignore[assignment]


class QNormal(Normal):
    """``normal``, rounded to a multiple of ``q``."""

    type: Literal["qnormal"] = "qnormal"  # type: ignore[assignment]
    q: Positive


class QLogNormal(Normal):
    """``lognormal``, rounded to a multiple of ``q``."""

    type: Literal["qlognormal"] = "qlognormal"  # type: ignore[assignment]
    q: Positive


class Randint(_InOrder):
    """A whole number from 0 to ``upper`` - 1."""

    type: Literal["randint"] = "randint"
    upper: Count


Distribution = Annotated[
    Choice
    | Uniform
    | LogUniform
    | QUniform
    | QLogUniform
    | Normal
    | LogNormal
    | QNormal
    | QLogNormal
    | Randint,
    Field(discriminator="type"),
    BeforeValidator(_lower),
]


DISTRIBUTIONS = (
    Choice,
    Uniform,
    LogUniform,
    QUniform,
    QLogUniform,
    Normal,
    LogNormal,
    QNormal,
    QLogNormal,
    Randint,
)


def names_of(space: Mapping[str, Any]) -> Iterator[str]:
    """The names of all parameters, those of nested spaces as `CHOICE.NAME`."""
    for name, parameter in space.items():
        yield name
        if isinstance(parameter, Choice):
            for value in parameter.values:
                if isinstance(value, Mapping):
                    yield from (f"{name}.{inner}" for inner in names_of(spaces_of(value)))


def spaces_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a nested space. A mapping with a known ``type`` is a distribution, anything
    else a plain value."""
    return {
        name: _DISTRIBUTION.validate_python(parameter) if _is_distribution(parameter) else parameter
        for name, parameter in value.items()
    }


def _is_distribution(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") in _TYPES


_DISTRIBUTION: TypeAdapter[Distribution] = TypeAdapter(Distribution)
_TYPES = frozenset(distribution.model_fields["type"].default for distribution in DISTRIBUTIONS)
