"""What a job's script says that is worth a note at submit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.core.environments.activation import installs_packages
from allranks.core.job.command_scripts import PACKAGES, scripts, shell_scripts
from allranks.errors import AllranksError
from allranks.http_client import Client
from allranks.sdk.submit.current_environment import is_current

if TYPE_CHECKING:
    import ast

    from allranks.api.jobs import CreatedJob

# How the names of built-in environments begin (curated.PREFIX, whose module imports packaging).
_BUILT_IN = "allranks-"
# Modules that no package of a built-in environment brings along, so that its list is enough.
_MODULES = (
    *("torchvision", "torchaudio", "deepspeed", "onnxruntime", "horovod", "tensorflow"),
    *("xgboost", "lightgbm", "cv2", "transformers", "accelerate", "lightning"),
    "pytorch_lightning",
)


# Bytes of a shell script that are read.
_READ = 1 << 16


def script_notes(client: Client, submission: Mapping[str, Any], job: CreatedJob) -> list[str]:
    """Sentences on the scripts of a job that was submitted, and on those of its trials or steps."""
    parts = list(_parts(submission["spec"]))
    if job["type"] == "pipeline":
        environments = [_environment(client, part) for part in parts]
    else:
        environments = [job["environment"]] * len(parts)
    sentences = [
        sentence
        for part, environment in zip(parts, environments, strict=True)
        for sentence in (
            *missing_imports(part, environment),
            *data_parallel(part, job),
            *windows_lines(part),
        )
    ]
    return list(dict.fromkeys(sentences))


def _parts(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The commands of a prepared job, with their code and environment."""
    if isinstance(spec.get("command"), str):
        yield spec
    for key in ("trial", "component"):
        if isinstance(inner := spec.get(key), Mapping):
            own = spec.get("environment") or inner.get("environment")
            yield from _parts({**inner, "environment": own})
    for node in (spec.get("jobs") or {}).values():
        if isinstance(node, Mapping):
            yield from _parts(node)


def _environment(client: Client, part: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the environment of a step is on the server; empty for the current one."""
    if is_current(part.get("environment")):
        return {}
    try:
        answer = client.ask(routes.show_recipe, body={"environment": part["environment"]})
    except AllranksError:
        return {}
    return {"name": answer["name"], "requirements": answer["recipe"]["requirements"]}


def missing_imports(part: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    """A sentence for each such import of a command in a built-in environment."""
    name, command = str(environment.get("name") or ""), str(part["command"])
    if not name.startswith(_BUILT_IN) or installs_packages(command):
        return []
    installed = [line.lower() for line in environment.get("requirements") or ()]
    sentences = []
    for script in scripts(command):
        for module, number in _imports(_file(part, script.folder, script.path)):
            package = PACKAGES.get(module, module)
            if not any(line.startswith(package) for line in installed):
                sentences.append(
                    f"{script.path}:{number} imports {module}, which {name} does not have: begin "
                    f"the command with `pip install {package} && `, or use another environment (-e)"
                )
    return sentences


def data_parallel(part: Mapping[str, Any], job: CreatedJob) -> list[str]:
    """A sentence for each script of one process per node that drives several GPUs by threads."""
    gpus = job.get("gpus_per_node", 0)
    if gpus < 2 or job["processes"] != job["nodes"]:
        return []
    return [
        f"{script.path}:{line} uses DataParallel, threads of one process for {gpus} GPUs: "
        f"DistributedDataParallel with `-d pytorch -p {gpus}` is faster"
        for script in scripts(str(part["command"]))
        if (line := _line_of_data_parallel(_file(part, script.folder, script.path)))
    ]


def windows_lines(part: Mapping[str, Any]) -> list[str]:
    """A sentence for each shell script whose lines end as on Windows: bash goes on after most
    errors of such a script, so that the job may complete."""
    return [
        f"{path} has Windows line endings, which bash takes as part of its words: remove them with "
        f"`sed -i 's/\\r$//' {path}` (dos2unix)"
        for path in shell_scripts(str(part["command"]))
        if _has_windows_lines(_file(part, path))
    ]


def _file(part: Mapping[str, Any], *path: str) -> Path:
    return Path(str(part.get("code") or "/"), *path)


def _has_windows_lines(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return b"\r\n" in opened.read(_READ)
    except OSError:
        return False


def _line_of_data_parallel(file: Path) -> int:
    """The first line that calls torch's DataParallel; 0 if none does."""
    import ast  # lazy: few scripts are read

    names = {"DataParallel", "nn.DataParallel", "torch.nn.DataParallel"}
    calls = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.Call))
    return min((call.lineno for call in calls if ast.unparse(call.func) in names), default=0)


def _tree(file: Path) -> ast.Module:
    """A script's; empty for what is no Python."""
    import ast  # lazy: as above

    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """The modules that a script imports whenever it runs, with their lines."""
    import ast  # lazy: as above

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
