"""Forms that only Python and the command line accept: a command as a list of arguments, and an
environment by its bare name.

``allranks run`` imports this module at every start: standard library only.
"""

from __future__ import annotations

import os
import shlex
from typing import Any

from allranks.errors import Problem, SpecError

_FILES = (".txt", ".yml", ".yaml")


def environment_reference(name: str) -> str:
    """``NAME``, ``NAME:VERSION`` and ``NAME@LABEL`` in the form of a job file."""
    return name if name == "current" else f"azureml:{name.removeprefix('azureml:')}"


def as_in_a_file(key: str, value: Any) -> Any:
    """The value of a job's ``key`` in the form of a job file. Raises SpecError."""
    if key == "command" and isinstance(value, list | tuple):
        # In quotes, a ``${{…}}`` is one argument, whatever its value.
        return shlex.join(_word(number, word) for number, word in enumerate(value))
    if key == "environment" and isinstance(value, str) and value:
        if value.lower().endswith(_FILES):
            kind = "requirements" if value.lower().endswith(_FILES[0]) else "conda_file"
            message = f"{value!r} is a file, not the name of an environment"
            hint = f"write Environment({kind}={value!r})"
            raise SpecError(Problem(message, key, hint=hint))
        return environment_reference(value)
    return value


def _word(number: int, word: Any) -> str:
    if isinstance(word, str | int | float | os.PathLike):
        return os.fspath(word) if isinstance(word, os.PathLike) else str(word)
    message = f"an argument must be a str or a number, not {type(word).__name__}"
    raise SpecError(Problem(message, f"command.{number}", hint="convert it with str(…)"))
