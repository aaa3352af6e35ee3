"""What a job's script says that is worth a note at submit."""

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


def data_parallel(spec: Mapping[str, Any], base: Path, job: CreatedJob) -> list[str]:
    """A sentence for each script of one process per node that drives several GPUs by threads."""
    gpus = job.get("gpus_per_node", 0)
    if gpus < 2 or job["processes"] != job["nodes"]:
        return []
    code = base / str(spec.get("code") or ".")
    return [
        f"{script.path}:{line} uses DataParallel, threads of one process for {gpus} GPUs: "
        f"DistributedDataParallel with `-d pytorch -p {gpus}` is faster"
        for script in scripts(str(spec.get("command") or ""))
        if (line := _line_of_data_parallel(code / script.folder / script.path))
    ]


def _line_of_data_parallel(file: Path) -> int:
    """The first line that calls torch's DataParallel; 0 if none does."""
    names = {"DataParallel", "nn.DataParallel", "torch.nn.DataParallel"}
    calls = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.Call))
    return min((call.lineno for call in calls if ast.unparse(call.func) in names), default=0)


def _tree(file: Path) -> ast.Module:
    """A script's; empty for what is no Python."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """The modules that a script imports whenever it runs, with their lines."""
    lines: dict[str, int] = {}
    for statement in _tree(file).body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names = [statement.module or ""]
        else:
            continue
        for name in names:
            lines.setdefault(name.partition(".")[0], statement.lineno)
    yield from ((name, line) for name, line in lines.items() if name in _MODULES)
