"""Imports of a job's script that a built-in environment does not have, named at submit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.core.environments.activation import installs_packages
from allranks.core.job.command_scripts import PACKAGES, scripts

if TYPE_CHECKING:
    from allranks.api.jobs import CreatedJob

# Modules that no package of a built-in environment brings along, so that its list is enough.
_MODULES = (
    *("torchvision", "torchaudio", "deepspeed", "onnxruntime", "horovod", "tensorflow"),
    *("xgboost", "lightgbm", "cv2", "transformers", "accelerate", "lightning"),
    "pytorch_lightning",
)


def missing_imports(spec: Mapping[str, Any], base: Path, job: CreatedJob) -> list[str]:
    """A sentence for each such import of a job in a built-in environment. ``base`` is the folder
    that the job's paths start at."""
    about = job["environment"]
    name, command = str(about.get("name") or ""), str(spec.get("command") or "")
    if installs_packages(command):
        return []
    installed = [line.lower() for line in about.get("requirements") or ()]
    code = base / str(spec.get("code") or ".")
    sentences = []
    for script in scripts(command):
        for module, number in _imports(code / script.folder / script.path):
            package = PACKAGES.get(module, module)
            if not any(line.startswith(package) for line in installed):
                sentences.append(
                    f"{script.path}:{number} imports {module}, which {name} does not have: begin "
                    f"the command with `pip install {package} && `, or use another environment (-e)"
                )
    return sentences


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """The modules that a script imports whenever it runs, with their lines."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    lines: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names = [statement.module or ""]
        else:
            continue
        for name in names:
            lines.setdefault(name.partition(".")[0], statement.lineno)
    yield from ((name, line) for name, line in lines.items() if name in _MODULES)
