"""`azureml.exceptions`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from allranks.compat.azure.notes import asks, without_effect
from allranks.errors import AllranksError, NotFound, SpecError


class AzureMLException(AllranksError):
    """As Azure's: ``message``."""


class UserErrorException(AzureMLException):
    """Wrong use."""


class NotThere(UserErrorException):
    """allranks has no such thing; the hint says what to do instead."""


class ComputeTargetException(AzureMLException):
    """There is no such compute."""


class RunEnvironmentException(AzureMLException):
    """There is no run to log to."""


class ExperimentExecutionException(AzureMLException):
    """A job could not be run."""


class ActivityFailedException(ExperimentExecutionException):
    """A job has failed."""


class WorkspaceException(AzureMLException):
    """About a workspace."""


class ProjectSystemException(WorkspaceException):
    """As above."""


class ModelNotFoundException(AzureMLException):
    """There is no such model."""


class WebserviceException(AzureMLException):
    """There is no such service, or it has failed."""


@contextlib.contextmanager
def found() -> Iterator[None]:
    """What is not found raises UserErrorException, as scripts expect that then create it."""
    try:
        yield
    except (NotFound, SpecError) as error:
        raise UserErrorException(error.message, hint=error.hint) from None


def not_there(what: str, hint: str) -> NoReturn:
    """Raise NotThere."""
    raise NotThere(f"{what} is not there in allranks", hint=hint)


def no_more(name: str, arguments: dict[str, Any], ignored: tuple[str, ...] = ()) -> None:
    """Raise NotThere for arguments that would have an effect on Azure and have none here.
    ``ignored`` are those that may be left without effect, which is noted."""
    without_effect(name, {key: arguments[key] for key in ignored if key in arguments})
    for key, value in arguments.items():
        if key not in ignored and asks(value):
            not_there(
                f"the argument `{key}` of {name}", "leave it out, or see docs/how-to/python.md"
            )
