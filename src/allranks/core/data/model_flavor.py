"""What a model is, by the names of its files: who reads it, and what belongs together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from allranks.core.text import printable
from allranks.errors import Problem

# By the end of a name, or by a whole one. Names that anybody's files may have (`.h5`, `.bin`,
# `.pkl`, `.safetensors`) say nothing.
_ENDINGS = {"pt": "pytorch", "pth": "pytorch", "keras": "tensorflow", "onnx": "onnx"}
_NAMES = {"saved_model.pb": "tensorflow"}
MLFLOW, PLAIN = "mlflow_model", "custom_model"
# What is loaded without a scoring script, if there is one such file.
_SCORED = ((".onnx",), (".pkl", ".pickle", ".joblib"), (".pt", ".pth"))
# The file that describes a model of MLflow's, and its list of flavors as MLflow writes it.
MLMODEL = "MLmodel"
_FLAVORS = re.compile(r"^flavors:\n((?:  .*\n?)+)", re.MULTILINE)


def flavor(paths: Iterable[str]) -> str | None:
    """Who reads a model of these files: ``pytorch``, ``tensorflow`` or ``onnx``; None when they do
    not say, or say several."""
    flavors = {_flavor_of(path.rpartition("/")[2]) for path in paths} - {None}
    return flavors.pop() if len(flavors) == 1 else None


def listed(mlmodel: str) -> list[str]:
    """The flavors that the text of an ``MLmodel`` lists."""
    block = _FLAVORS.search(mlmodel)
    return re.findall(r"^  (\w+):", block[1], re.MULTILINE) if block else []


def _flavor_of(name: str) -> str | None:
    stem, _, ending = name.rpartition(".")
    return _NAMES.get(name) or (_ENDINGS.get(ending.lower()) if stem else None)


def model_type(paths: Iterable[str]) -> str:
    """MLflow's have a file ``MLmodel`` at their top; all others are plain files."""
    return MLFLOW if MLMODEL in paths else PLAIN


def belongs_to(name: str, beside: Iterable[str]) -> list[str]:
    """Of the names ``beside`` a file those it cannot be read without: ONNX keeps what is large in
    files of its own (`model.onnx.data`, `model.onnx_data`, `model.onnx_data_1`)."""
    if not name.lower().endswith(".onnx"):
        return []
    heads = (f"{name}.data", f"{name}_data")
    return sorted(other for other in beside if other.startswith(heads))


def script_problem(model: str, paths: Iterable[str]) -> Problem | None:
    """Why a model of these files needs a scoring script; None for MLflow's, and for one ONNX file,
    pickle or TorchScript, as `allranks_scoring.models` loads them."""
    files = sorted(paths)
    names = [path.rpartition("/")[2] for path in files]
    counts = [sum(name.endswith(endings) for name in names) for endings in _SCORED]
    if MLMODEL in names or 1 in counts:
        return None
    has = ", ".join(map(printable, files[:5])) + (" and others" if len(files) > 5 else "")
    message = (
        f"{model} needs a scoring script: it is neither MLflow's nor one ONNX file, pickle or "
        f"TorchScript, but has {has or 'no files'}"
    )
    hint = "--script FILE, or code_configuration: {code: FOLDER, scoring_script: FILE}"
    return Problem(message, hint=f"{hint}, with a function run(data)")
