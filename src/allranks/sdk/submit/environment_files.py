"""Read environment files on the client and inline their content."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from allranks.errors import NotFound, Problem, SpecError, UsageError
from allranks.masking import without_credentials

if TYPE_CHECKING:
    from allranks.api.common import Document

_OPTION = re.compile(r"(?P<option>-[a-z]|--[a-z-]+)(\s*=\s*|\s+|(?<=-[a-z]))(?P<value>.+)")
_BESIDE = re.compile(r"(?<=[\w\]\"']) (--(?:no|only)-binary[ =]\S+)")
# pip takes `-iURL`, uv does not.
_GLUED = re.compile(r"^(-[if])(?=[^\s=])")
_FILES = {"-r": "-r", "--requirement": "-r", "-c": "-c", "--constraint": "-c"}
_FOLDERS = ("-f", "--find-links")
_BUILT = (".whl", ".tar.gz", ".zip")


def from_file(file: Path) -> Document:
    """The environment of a requirements file, a conda file, or an environment's own YAML.

    Raises NotFound, UsageError, or SpecError with the file's lines.
    """
    if file.suffix.lower() == ".txt":
        return inlined({"requirements": str(file)}, Path())
    data, _ = _yaml(file)
    if "command" in data and isinstance(data.get("environment"), Mapping):
        return inlined(data["environment"], file.parent)  # a job's
    if "dependencies" in data:
        return inlined({"conda_file": str(file)}, Path())
    return inlined({key: value for key, value in data.items() if key != "$schema"}, file.parent)


def inlined(environment: Mapping[str, Any], base: Path) -> Document:
    """The environment with the content of its files instead of their paths, relative to ``base``.
    Invalid values are left for the models to report. Raises like ``from_file``."""
    keys = {key: _written(value) for key, value in environment.items()}
    limits: list[str] = []
    if isinstance(keys.get("conda_file"), str | os.PathLike):
        keys["conda_file"] = _conda(_path(keys["conda_file"], base), limits)
    elif isinstance(keys.get("conda_file"), Mapping):
        keys["conda_file"] = _with_pip(keys["conda_file"], base, limits)
    lines: list[str] = []
    pip = keys.get("pip") or ()
    if isinstance(pip, list | tuple) and all(isinstance(line, str) for line in pip):
        lines += _lines(pip, base, limits)
        if isinstance(keys.get("requirements"), str | os.PathLike):
            lines += _read(_path(keys.pop("requirements"), base), limits)
            keys["pip"] = lines
        if lines:
            keys["pip"] = lines
    value = keys.get("constraints") or ()
    if isinstance(value, str | os.PathLike):
        keys["constraints"] = [*_read(_path(value, base), limits), *limits]
    elif isinstance(value, list | tuple) and all(isinstance(line, str) for line in value):
        several = [*_lines(value, base, limits), *limits]
        keys |= {"constraints": several} if several else {}
    if isinstance(keys.get("build"), Mapping):
        keys["build"] = _context(keys["build"], base)
    return keys


def _context(build: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """The build context with an absolute path; URLs are left unchanged."""
    path = build.get("path")
    if not isinstance(path, str) or "://" in path or path.startswith("git@"):
        return build
    folder = Path(os.path.abspath(base / Path(path.removeprefix("file:")).expanduser()))
    if not folder.is_dir():
        hint = f"relative paths start at {base.absolute()}"
        problem = Problem(f"folder {str(folder)!r} not found", "environment.build.path", hint=hint)
        raise SpecError(problem)
    file = build.get("dockerfile_path") or "Dockerfile"
    if isinstance(file, str) and not (folder / file).is_file():
        hint = "`dockerfile_path: …` names another, from the folder of `path`"
        where = "environment.build.dockerfile_path"
        raise SpecError(Problem(f"{file!r} not found in {str(folder)!r}", where, hint=hint))
    return {**build, "path": str(folder), **_without_containers(build, folder, folder / str(file))}


def _without_containers(build: Mapping[str, Any], folder: Path, file: Path) -> Document:
    """The environment that has what the Dockerfile installs; why there is none, as `refused`."""
    from allranks.core.environments import dockerfile  # lazy: few jobs have one

    if "without_containers" in build:
        return {}
    try:
        environment = inlined(dockerfile.environment_of(file.read_text(errors="replace")), folder)
    except SpecError as error:
        refused = [f"{file}:{problem.line}: {problem.message}" for problem in error.problems]
        return {"without_containers": {"refused": refused}}
    except UsageError as error:
        return {"without_containers": {"refused": [str(error)]}}
    return {"without_containers": environment}


def _conda(file: Path, limits: list[str]) -> Document:
    from allranks.core.environments import conda  # lazy: few jobs have such a file
    from allranks.spec.fields.problems import in_file  # lazy: imports the models

    data, lines = _yaml(file)
    with in_file(file, lines):
        conda.read(data)
    return _with_pip(data, file.parent, limits)


def _with_pip(data: Mapping[str, Any], folder: Path, limits: list[str]) -> Document:
    """A conda file's mapping with its pip sections read like requirements files."""

    def one(each: Any) -> Any:
        several = each.get("pip") if isinstance(each, Mapping) else None
        if not isinstance(several, list) or not all(isinstance(line, str) for line in several):
            return each
        return {"pip": [*_lines(several, folder, limits)]}

    dependencies = data.get("dependencies")
    if not isinstance(dependencies, list):
        return dict(data)
    return {**data, "dependencies": [one(dependency) for dependency in dependencies]}


def _yaml(file: Path) -> tuple[Document, dict[str, int]]:
    from allranks.spec.yaml import load  # lazy: imports the models

    try:
        text = load.content(file)
    except NotFound:
        hint = "a requirements file (.txt), a conda file, or an environment's YAML"
        raise NotFound("file not found", where=str(file), hint=hint) from None
    data, lines = load.read(text, file=str(file))
    return _written(data), lines


def _written(value: Any) -> Any:
    """Keep the spelling: `python: 3.10` is not 3.1."""
    if isinstance(value, dict):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_written(each) for each in value]
    return getattr(value, "written", value)


def _read(file: Path, limits: list[str], within: tuple[Path, ...] = ()) -> list[str]:
    """The lines of a requirements file and of the files it includes."""
    try:
        whole = file.resolve()
        text = "" if whole in within else _text(file)
    except (FileNotFoundError, NotADirectoryError):
        hint = "relative paths start at the folder of the file that contains them"
        raise NotFound("requirements file not found", where=str(file), hint=hint) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"the file cannot be read: {why}", where=str(file), hint="a line for each package"
        ) from None
    if whole in within:
        raise UsageError("the file includes itself", where=str(file), hint="remove that `-r`")
    lines = []
    for number, row in _joined(text):
        for line in _lines([row], file.parent, limits, (*within, whole)):
            _hold_to_form(line, file, number)
            lines.append(line)
    return lines


def _text(file: Path) -> str:
    """PowerShell's `pip freeze > FILE` writes UTF-16, and Windows' editors a mark before UTF-8."""
    with file.open("rb") as opened:
        utf_16 = opened.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return file.read_text(encoding="utf-16" if utf_16 else "utf-8-sig")


def _hold_to_form(line: str, file: Path, number: int) -> None:
    """Raise SpecError for a line that is not a requirement, an option or an address."""
    from packaging.requirements import InvalidRequirement, Requirement  # lazy: 10 ms

    from allranks.core.environments import packages  # lazy: as above

    if path := _source_folder(line):
        message = f"{path!r} is a folder of source, which may change after the environment is built"
        build = f"pip wheel --no-deps {shlex.quote(path)}"
        hint = f"name a wheel of it ({build}), or put the folder on PYTHONPATH"
        raise SpecError(Problem(message, None, number, hint), file=str(file))
    if wrong := packages.wrong_option(line):
        raise SpecError(Problem(wrong[0], None, number, wrong[1]), file=str(file))
    if line.startswith("-") or "://" in line:
        return
    try:
        Requirement(line.partition(" --")[0])
    except InvalidRequirement as error:
        message = str(error).partition("\n")[0].lower()
        hint = "as pip takes it: `numpy>=1.26,<2`"
        problem = Problem(f"{line!r} is not a requirement: {message}", None, number, hint)
        raise SpecError(problem, file=str(file)) from None


def _source_folder(line: str) -> str:
    """The path of a line that installs a folder of this machine; empty for others."""
    editable = re.match(r"(?:-e|--editable)[\s=]*(.+)", line)
    path = editable[1] if editable else line
    is_path = "://" not in path and path.startswith((".", "/", "~"))
    return path if is_path or (editable and "://" not in path) else ""


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines, with continuation lines joined."""
    kept = ""
    for number, row in enumerate(text.splitlines(), 1):
        # Like pip: comments have no continuation lines.
        goes_on = row.endswith("\\") and not row.lstrip().startswith("#")
        kept += f"{row[:-1]} " if goes_on else row
        if not goes_on:
            yield number, kept
            kept = ""
    if kept:
        yield number, kept


def _lines(
    rows: Iterable[str], folder: Path, limits: list[str], within: tuple[Path, ...] = ()
) -> Iterator[str]:
    """Lines of pip with paths made absolute and files read; constraints go to ``limits``."""
    for row in rows:
        line = re.sub(r"(^| )#.*", "", " ".join(row.split())).strip()
        option = _OPTION.fullmatch(line)
        if not line:
            continue
        if option and (kind := _FILES.get(option["option"])):
            value = option["value"].strip()
            if "://" in value:
                hint = "download it and give the file"
                shown = without_credentials(value)
                raise UsageError("requirements are not downloaded", where=shown, hint=hint)
            lines = _read(_path(value, folder), limits, within)
            if kind == "-r":
                yield from lines
            else:
                limits += lines
        elif option and option["option"] in _FOLDERS and "://" not in option["value"]:
            yield f"--find-links {_path(option['value'].strip(), folder).absolute()}"
        elif beside := _BESIDE.search(line):
            # pip takes this option on the line of a requirement, too.
            yield beside[1]
            yield _BESIDE.sub("", line)
        elif _is_path(line):
            yield _file(_path(line, folder).absolute())
        else:
            yield _GLUED.sub(r"\1 ", line)


def _is_path(line: str) -> bool:
    plain = "://" not in line and not line.startswith("-") and " @ " not in line
    return plain and (line.startswith((".", "~")) or "/" in line or line.endswith(_BUILT))


def _file(path: Path) -> str:
    """A package's file with its hash, because a rebuild changes its content."""
    if not path.name.endswith(_BUILT):
        return str(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        hint = "relative paths start at the folder of the file that contains them"
        raise NotFound(f"the package cannot be read: {why}", where=str(path), hint=hint) from None
    name = path.name.partition("-")[0]
    return f"{name} @ file://{quote(str(path))}#sha256={hashlib.sha256(content).hexdigest()}"


def _path(value: str | os.PathLike[str], folder: Path) -> Path:
    return folder / os.path.expanduser(value)
