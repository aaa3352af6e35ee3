"""Python programs, notebooks and shell scripts of a folder: which names and lines are there."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from allranks.cli.az.verbs import read as read_az
from allranks.cli.importing.finding import NO, PARTLY, YES, Finding
from allranks.compat.azure.names import ABSENT, NAMES, PACKAGES
from allranks.compat.ssm.parser import read as read_ssm
from allranks.errors import AllranksError

_OURS = ("azureml", "azure.ai.ml", "simple_sagemaker")
_SAGEMAKER = ("sagemaker", "boto3")
_LINE = re.compile(r"(?:^|[\s;&|(`])(az\s+ml|ssm)\s+(.+)")
# What ends a command of a shell's line, as far as the options are concerned.
_END = re.compile(r"\s*(?:\||&&|\|\||;|>|2>|&$|\)|`).*$")


def look_at_program(file: Path, name: str) -> Finding | None:
    """What is found of a .py file or a notebook; None if it imports nothing of the kind."""
    try:
        sources = list(_sources(file))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    imports = {each for source in sources for each in _imports(source)}
    problems, supported = [], 0
    for module, attribute in sorted(imports):
        if module.partition(".")[0] in _SAGEMAKER:
            problems.append((f"{module} speaks to AWS", "use `allranks ssm`, or a job file"))
            continue
        if not module.startswith(_OURS):
            continue
        if _is_there(module, attribute):
            supported += 1
            continue
        hint = ABSENT.get(module, {}).get(attribute) or "see the page of Azure's names"
        problems.append((f"{module}{attribute and '.'}{attribute} is not there", hint))
    if not (supported or problems):
        return None
    runs = YES if not problems else PARTLY if supported else NO
    how = "allranks python" + (" -m nbconvert --execute" if file.suffix == ".ipynb" else "")
    inside = {module for module, each in imports if each == "Run"} and supported == 1
    notes = ("logs to its job",) if inside else (f"{how} {name}",)
    kind = "notebook" if file.suffix == ".ipynb" else "program"
    return Finding(name, kind, runs, notes if supported else (), tuple(problems))


def _sources(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix != ".ipynb":
        yield text
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield "\n".join(each for each in lines if not each.lstrip().startswith(("%", "!")))


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, each.name) for each in node.names)


def _is_there(module: str, attribute: str) -> bool:
    if module not in NAMES and module not in PACKAGES:
        return False
    names = NAMES.get(module, {})
    return attribute in ("", "*") or attribute in names or f"{module}.{attribute}" in NAMES


def look_at_script(file: Path, name: str) -> Finding | None:
    """What is found of a shell script; None if it has no line of `az ml` or `ssm`."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    problems, supported, kinds = [], 0, set()
    for line in text.replace("\\\n", " ").splitlines():
        match = _LINE.search(line)
        if match is None or line.lstrip().startswith("#"):
            continue
        program = "ssm" if match[1] == "ssm" else "az"
        kinds.add(program)
        try:
            words = shlex.split(_END.sub("", match[2]), comments=True)
        except ValueError:
            words = match[2].split()
        try:
            read_ssm(words) if program == "ssm" else read_az(words)
            supported += 1
        except AllranksError as error:
            problems.append((f"{program} {' '.join(words[:3])}: {error.message}", error.hint or ""))
        except SystemExit:
            supported += 1
    if not kinds:
        return None
    runs = YES if not problems else PARTLY if supported else NO
    notes = tuple(
        f'{each}: a file `{each}` on PATH with exec allranks {each} "$@"' for each in sorted(kinds)
    )
    return Finding(name, "script", runs, notes, tuple(problems))
