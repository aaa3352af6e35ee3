"""The base of all parts of a job: pydantic models that raise SpecError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from allranks.errors import SpecError
from allranks.spec.fields.problems import problems

if TYPE_CHECKING:  # otherwise type checkers would not see the models' parameters and attributes
    _Base = BaseModel
else:

    class _Constructor(type(BaseModel)):
        """Raises SpecError instead of pydantic's error."""

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            # Not by an `__init__` of its own, which pydantic would call within other models.
            if args and hasattr(cls, "by_position"):
                keywords, args = dict(cls.by_position(args), **keywords), ()
            try:
                return super().__call__(*args, **keywords)
            except ValidationError as error:
                raise SpecError(problems(error, keywords, {"": (cls,)})) from None

    class _Base(BaseModel, metaclass=_Constructor):
        def __setattr__(self, name: str, value: Any) -> None:
            before = self.__dict__.copy()
            try:
                super().__setattr__(name, value)
            except ValidationError as error:
                # A validator of the whole model runs after the value is set.
                self.__dict__.update(before)
                errors = problems(error, {name: value}, {"": (type(self),)})
                errors = [problem._replace(where=problem.where or name) for problem in errors]
                raise SpecError(errors) from None


class Part(_Base):
    """A part of a job. Unknown keys are errors. An attribute may be assigned: the value is checked
    as a constructor checks it, and the part stays as it was when SpecError is raised.

    A part that is assigned to another is copied, so jobs never share parts.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
        validate_assignment=True,
        revalidate_instances="always",
        # Most parts are only built into the validator of a whole job: none of their own at import.
        defer_build=True,
    )


class Asset(Part):
    """A part that may be registered, with a name and versions."""

    @property
    def id(self) -> str | None:
        """What a job's path may say for it; None before it is registered."""
        name = getattr(self, "name", None)
        version = getattr(self, "version", None)
        return f"azureml:{name}:{version}" if name and version else None


def plain(value: Any) -> Any:
    """A model's data without default values, with its type."""
    if not isinstance(value, BaseModel):
        return value
    data = value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    kind = getattr(value, "type", None)
    return {"type": str(kind), **data} if kind else data
