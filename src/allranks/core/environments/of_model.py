"""The environment that a model of MLflow's brings: the files beside its ``MLmodel``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.core.data.model_flavor import MLMODEL
from allranks.core.environments import conda
from allranks.core.environments.packages import requirement
from allranks.errors import Problem, SpecError
from allranks.spec.yaml import load

_CONDA, _PYTHON_ENV, _REQUIREMENTS = "conda.yaml", "python_env.yaml", "requirements.txt"
# The first of these that is there says it; others are named within it.
_SOURCES = (_CONDA, _PYTHON_ENV, _REQUIREMENTS)
FILES = (*_SOURCES, "constraints.txt")
# Conda and MLflow install it beside every Python, and older releases import its `pkg_resources`.
_SETUPTOOLS = "setuptools<81"
# Bytes of such a file.
LARGEST = load.MAX_BYTES
_INCLUDES = {
    "-r": "pip",
    "--requirement": "pip",
    "-c": "constraints",
    "--constraint": "constraints",
}


def folder_of(paths: list[str]) -> str | None:
    """The folder of a model's ``MLmodel``, with its slash; None if it has none."""
    models = [path for path in paths if path.rpartition("/")[2] == MLMODEL]
    return min(models, key=len).removesuffix(MLMODEL) if models else None


def environment_of(texts: Mapping[str, str], model: str) -> dict[str, Any] | None:
    """What the ``texts`` of `FILES` make of an environment; None without one. Raises SpecError for
    what cannot be had."""
    source = next((name for name in _SOURCES if name in texts), None)
    if source is None:
        return None
    where = f"{source} of the model {model}"
    data: Mapping[str, Any] = {}
    if source != _REQUIREMENTS:
        data, _ = load.read(texts[source], file=where)
    python, rows = _text(data.get("python")), [f"-r {_REQUIREMENTS}"]
    if source == _CONDA:
        try:
            of_conda = conda.read(data)
        except SpecError as error:
            raise SpecError(error.problems, file=where) from None
        python, rows = of_conda.python, [line for _, line in of_conda.requirements]
    elif source == _PYTHON_ENV:
        dependencies = data.get("dependencies") or ()
        if not isinstance(dependencies, list | tuple):
            raise SpecError([Problem("must be a list of packages", "dependencies")], file=where)
        rows = [_text(row) for row in dependencies]
    lines: dict[str, list[str]] = {"pip": [], "constraints": []}
    _collect(rows, dict(texts), lines, "pip")
    packages = filter(None, map(requirement, lines["pip"]))
    names = {package.name.lower() for package in packages}
    if names.isdisjoint(("mlflow", "mlflow-skinny", "azureml-mlflow")):
        lines["pip"].append("mlflow")  # which loads it
    if "setuptools" not in names:
        lines["pip"].append(_SETUPTOOLS)
    minor = ".".join(python.split(".")[:2]) if python[:1].isdigit() else python
    made = {"description": where, "nearest_python": True, "python": minor, **lines}
    return {key: value for key, value in made.items() if value}


def _collect(rows: list[str], texts: dict[str, str], lines: dict[str, list[str]], key: str) -> None:
    """Add rows to ``lines`` without comments, and once those of the ``texts`` that they name."""
    for row in rows:
        line = f" {row}".partition(" #")[0].strip()
        option, _, name = line.replace("=", " ", 1).partition(" ")
        if option not in _INCLUDES:
            lines[key] += [line] if line else []
        elif (text := texts.pop(name.strip().removeprefix("./"), None)) is not None:
            inner = _INCLUDES[option] if key == "pip" else key
            _collect(text.splitlines(), texts, lines, inner)
        else:
            lines[key].append(line)  # refused as any file that is not there


def _text(value: Any) -> str:
    return str(getattr(value, "written", value) or "")
