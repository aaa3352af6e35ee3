"""What ranks find around them: from an environment as written to a recipe, or to none. Pure.

A recipe says what is asked for, not what was found: equal recipes are one environment on a node,
whoever wrote them and whatever they are called.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from allranks.core.environments import conda, curated, packages
from allranks.core.environments.container import ENGINES, FILE, TRACELESS
from allranks.core.environments.packages import NONE, normal, requirement
from allranks.core.plan import CurrentPython, Recipe
from allranks.errors import Problem, SpecError, UsageError
from allranks.spec.fields.azureml_references import Asset, asset_of
from allranks.spec.job_parts import BuildContext, Environment

_ANY, _PYTHON = "*", "python="
CURRENT = (None, "current", "azureml:current@latest")
# What is taken in the place of what was asked for, by its pattern: `python=3.6`, `torch==1.6.*`,
# or the name of an image, for which another environment stands where containers are not run.
Table = Mapping[str, str]
# Of an environment what makes more of an image than it is.
_BESIDE_IMAGE = ("conda_file", "pip", "requirements", "python")
_FILE_IS_GONE = "the file is not sent with the job"
# Options of pip's that mean something on one machine alone, and what is written instead.
_NO_GOOD = {
    "-e": ("it is an editable folder", "give a wheel, or name the folder in PYTHONPATH"),
    "-r": (_FILE_IS_GONE, "write `requirements: FILE`"),
    "-c": (_FILE_IS_GONE, "write `constraints:` and below it the lines of that file"),
}
_READ_THERE = "the client reads the file and sends its content"
_SHORT = {"--editable": "-e", "--requirement": "-r", "--constraint": "-c"}


class Resolved(NamedTuple):
    """What an environment means on a compute: ``environment`` None for the Python in front.
    ``name`` is what it was called, where it has a name; ``asked`` is the name or image that it
    stands for, if it is another."""

    name: str = ""
    environment: Environment | None = None
    notes: tuple[str, ...] = ()
    asked: str = ""


# Knows environments by name and version; raises SpecError for one that there is not.
Find = Callable[[Asset], Resolved]


class Compute(NamedTuple):
    """What counts of the compute that ranks run on: its name, and whether it runs containers."""

    name: str = ""
    runs_images: bool = False


def resolve(requested: object, on: Compute, table: Table, find: Find) -> Resolved:
    """What is meant by an environment of a job.

    Raises SpecError for one that there is not, or that its compute cannot have.
    """
    if requested in CURRENT:
        return Resolved()
    if isinstance(requested, Environment):
        resolved = Resolved("", requested)
    else:
        resolved = _named(asset_of(str(requested), "environment"), table, find)
    environment = resolved.environment
    if environment is None:
        return resolved  # the map has the current Python for it
    if on.runs_images or (environment.image is None and environment.build is None):
        return resolved
    if environment.build is not None:
        return _instead_of_building(resolved, environment.build, on, table, find)
    assert environment.image is not None
    note = f"the image {environment.image} is not used: {_of(on)} runs no containers"
    if not is_image(environment):
        return resolved._replace(notes=(*resolved.notes, note))
    instead = _stands_for(environment.image, on, table)
    asked_for = resolved.asked or resolved.name or environment.image
    other = _standing_for(environment.image, instead, find)
    if other.environment is None:
        return Resolved(notes=(f"{note}; using the current Python instead",), asked=asked_for)
    if other.environment is not None and is_image(other.environment):
        message = (
            f"{other.name}, the replacement for the image {environment.image}, is also an image"
        )
        hint = f"name one with packages: allranks environment map {environment.image} ENVIRONMENT"
        raise SpecError(Problem(message, "environment.image", hint=hint))
    note = f"{note}; using {other.name} instead{_difference(environment.image, other)}"
    return other._replace(notes=(note,), asked=asked_for)


def _instead_of_building(
    resolved: Resolved, build: BuildContext, on: Compute, table: Table, find: Find
) -> Resolved:
    """What the Dockerfile installs, beside what stands for its base image."""
    keys = build.without_containers or {}
    if "image" not in keys:
        lines = "".join(f"; {line}" for line in keys.get("refused", ()))
        hint = f"enable containers: {_let_run(on, '')}; or list packages instead of `build`"
        message = f"{_of(on)} runs no containers and builds no images{lines}"
        raise SpecError(Problem(message, "environment.build", hint=hint))
    image = str(keys["image"])
    base = _standing_for(image, _stands_for(image, on, table), find)
    instructions = {"image", "left_out"}
    own = Environment.model_validate({key: keys[key] for key in keys if key not in instructions})
    name = base.name or "the current Python"
    note = f"no image is built: {_of(on)} runs no containers"
    if left_out := keys.get("left_out"):
        note += f", and {', '.join(left_out)} of the Dockerfile are not used"
    if base.environment is None and is_empty(own):
        return Resolved(notes=(*resolved.notes, f"{note}; using {name} instead"), asked=image)
    under = base.environment or Environment()
    merged = own.model_copy(
        update={
            "pip": (*under.pip, *own.pip),
            "python": own.python or under.python,
            "torch_backend": under.torch_backend,
            "constraints": (*under.constraints, *own.constraints),
            "allow_builds": resolved.environment is not None and resolved.environment.allow_builds,
        }
    )
    notes = (*resolved.notes, f"{note}; installing the packages over {name} instead")
    return Resolved(resolved.name, merged, notes, image)


def is_empty(environment: Environment) -> bool:
    """Whether nothing is to be installed."""
    return not any(getattr(environment, key) for key in _BESIDE_IMAGE)


def _stands_for(image: str, on: Compute, table: Table) -> str:
    if (instead := _named_instead(image, table)) is not None:
        return instead
    message = f"{_of(on)} runs no containers, and no environment is mapped to the image {image}"
    hint = (
        f"enable containers: {_let_run(on, image)}; or map it to an environment: "
        f"allranks environment map {image} ENVIRONMENT"
    )
    raise SpecError(Problem(message, "environment.image", hint=hint))


def _let_run(on: Compute, image: str) -> str:
    engine = TRACELESS[0] if image.endswith(FILE) else ENGINES[0]
    return f"allranks compute update {on.name or 'NAME'} --container {engine}"


def _of(compute: Compute) -> str:
    return f"the compute {compute.name!r}" if compute.name else "this"


def _named(asset: Asset, table: Table, find: Find) -> Resolved:
    try:
        return find(asset)
    except SpecError:
        if (instead := _named_instead(asset.name, table)) is None:
            raise
    resolved = _standing_for(asset.name, instead, find)
    name = resolved.name or "the current Python"
    note = f"the environment {asset} does not exist here; using {name} instead"
    note += _difference(asset.name, resolved)
    return resolved._replace(notes=(note,), asked=str(asset))


def _standing_for(name: str, instead: str, find: Find) -> Resolved:
    """What the map has for an image or a name: an environment, a Python, or the current one."""
    if instead in CURRENT:
        return Resolved()
    word, _, version = instead.partition("=")
    if word != curated.PYTHON:
        return find(asset_of(instead, "environment"))
    version = version or _version_in(name)
    # No version in the tag is any Python, and the one in front is as good as another.
    return (
        Resolved(f"plain Python {version}", Environment(python=version)) if version else Resolved()
    )


def _difference(name: str, taken: Resolved) -> str:
    """How a built-in environment differs from what it stands for, in brackets."""
    if taken.environment is None or not taken.name.startswith(curated.PREFIX):
        return ""
    text = curated.difference(name, taken.environment.pip)
    return f" ({text})" if text else ""


def reference(name: str) -> str:
    """How a job file refers to the environment that a plan calls ``name``: empty if it cannot,
    because that is only a Python."""
    return f"azureml:{name}" if ":" in name else ""


def _version_in(image: str) -> str:
    """The minor version in the tag of an image of Python: `python:3.11.6-slim` is `3.11`."""
    match = re.fullmatch(r".*:(3\.\d+|2(?:\.\d+)?)([.-].*)?", image)
    return match[1] if match else ""


def is_image(environment: Environment) -> bool:
    """Whether it is an image, one to be made too, and nothing beside it."""
    some = environment.image is not None or environment.build is not None
    return some and is_empty(environment)


def recipe(of: Resolved, table: Table) -> Recipe:
    """The recipe of an environment's packages; it has some, or a Python.

    Raises SpecError with every line that cannot be had.
    """
    environment = of.environment
    assert environment is not None
    conda_file, problems = _conda(environment)
    if environment.requirements is not None:
        where = "environment.requirements"
        problems.append(Problem("the content of the file is missing", where, hint=_READ_THERE))
    notes = [*of.notes, *conda_file.notes]
    python = (environment.python or conda_file.python).removeprefix("python").lstrip("= ")
    instead = _instead(f"python={python}", table)
    if instead not in (None, python, f"python={python}"):
        instead = instead.removeprefix("python=")
        notes.append(f"python {python} was requested, using {instead}")
        python = instead
    if re.match(r"2(\.|$)", python):
        hint = f"use Python 3 instead: allranks environment map python={python} 3.12"
        problems.append(Problem(f"Python {python} is not supported", "environment", hint=hint))
    own = [(f"environment.pip.{n}", line.strip()) for n, line in enumerate(environment.pip)]
    lines = []
    for place, line in (*conda_file.requirements, *own):
        try:
            _check(line)
            lines.append(line)
        except SpecError as error:
            problems += [problem._replace(where=place) for problem in error.problems]
    if problems:
        raise SpecError(problems)
    taken = packages.replaced([line for line in lines if line], lambda line: _instead(line, table))
    return Recipe(
        python,
        taken.lines,
        tuple(environment.constraints),
        environment.torch_backend or "",
        conda_file.variables,
        (*notes, *taken.notes),
        environment.allow_builds,
        curated.OPTIONAL if of.name.startswith(curated.PREFIX) else (),
        nearest_python=environment.nearest_python,
    )


def recipe_of_current(python: CurrentPython, table: Table) -> Recipe:
    """The recipe that makes the submitter's Python again. The node decides which build of PyTorch
    it gets."""
    environment = Environment(python=python.version, pip=python.requirements, torch_backend="auto")
    made = recipe(Resolved("", environment), table)
    return made._replace(exact=True, notes=(*python.notes, *made.notes))


def _conda(environment: Environment) -> tuple[conda.Asked, list[Problem]]:
    where = "environment.conda_file"
    if environment.conda_file is None:
        return conda.Asked(), []
    if not isinstance(environment.conda_file, Mapping):
        return conda.Asked(), [
            Problem("the content of the file is missing", where, hint=_READ_THERE)
        ]
    try:
        return conda.read(environment.conda_file, where), []
    except SpecError as error:
        return conda.Asked(), list(error.problems)


def _check(line: str) -> None:
    """Raise SpecError for a line of pip's that cannot be had."""
    word = line.split()[0].partition("=")[0] if line else ""
    if bad := _NO_GOOD.get(_SHORT.get(word, word)):
        raise SpecError(Problem(f"{line!r} cannot be installed: {bad[0]}", hint=bad[1]))
    if wrong := packages.wrong_option(line):
        raise SpecError(Problem(*wrong[:1], hint=wrong[1]))
    if not line or line.startswith("-") or "://" in line:
        return  # an option, or an address: uv looks at it
    if line.startswith((".", "/", "~")):
        hint = "give a wheel of it (a .whl file), or name the folder in PYTHONPATH"
        raise SpecError(
            Problem(f"{line!r} cannot be installed: it is an editable folder", hint=hint)
        )
    try:
        Requirement(line.partition(" --")[0])  # hashes may follow
    except InvalidRequirement as error:
        message = str(error).partition("\n")[0].lower()
        hint = "as pip takes it: `numpy>=1.26,<2`"
        raise SpecError(Problem(f"{line!r} is not a requirement: {message}", hint=hint)) from None


def entry(key: str, taken: str) -> tuple[str, str]:
    """A row of the table as it is looked up. Raises UsageError for what can never be met, or never
    be had."""
    key = key.strip()
    taken = taken.strip()
    if not key or not taken:
        raise UsageError("the replacement is empty", where=key, hint="name a replacement")
    if key == taken:
        raise UsageError("it would replace itself", where=key, hint="name a replacement")
    if key.startswith(_PYTHON):
        if taken == NONE:
            hint = "name a version: allranks environment map python=3.6 3.11"
            raise UsageError("an environment needs Python", where=key, hint=hint)
        return key, taken.removeprefix("python=")
    if taken == NONE:
        named = requirement(key)
        return (normal(named) if named is not None else key), NONE
    if _versioned(key) is not None:
        try:
            Requirement(taken)
        except InvalidRequirement:
            hint = "as pip takes it: torch==2.13.0"
            raise UsageError(f"{taken!r} is not a requirement", where=key, hint=hint) from None
    return looked_up(key), taken


def looked_up(key: str) -> str:
    """What is asked for as the table has it, however it was written: `Pillow>=6, <7` is
    `pillow<7,>=6`. A pattern, or a name without a version, is itself."""
    requirement = _versioned(key)
    return key if requirement is None else normal(requirement)


def _versioned(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return requirement if requirement.specifier else None


def _instead(key: str, table: Table) -> str | None:
    """What stands for a Python (`python=3.6`) or a package: by its very name first, then by the
    first pattern. `*` is any image and environment, but no package."""
    if key in table:
        return table[key]
    return next((to for glob, to in table.items() if glob != _ANY and _matches(key, glob)), None)


def _named_instead(name: str, table: Table) -> str | None:
    """What stands for an image or an environment: `*` counts last, capital letters for nothing."""
    if name in table:
        return table[name]
    named = (
        (glob, to) for glob, to in table.items() if glob != _ANY and not glob.startswith(_PYTHON)
    )
    fitting = (to for glob, to in named if _matches(name.lower(), glob.lower()))
    return next(fitting, table.get(_ANY))


def _matches(name: str, pattern: str) -> bool:
    # A Python is matched by patterns of Pythons alone, and a package by none of them.
    if name.startswith(_PYTHON) != pattern.startswith(_PYTHON):
        return False
    return fnmatch.fnmatchcase(name, pattern)
