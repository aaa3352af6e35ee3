"""Files that environments are written in, read where the job is submitted: they do not travel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from allranks.errors import NotFound, SpecError, UsageError

_OPTION = re.compile(r"(?P<option>-[a-z]|--[a-z-]+)(\s*=\s*|\s+|(?<=-[a-z]))(?P<value>.+)")
_FILES = {"-r": "-r", "--requirement": "-r", "-c": "-c", "--constraint": "-c"}
_FOLDERS = ("-f", "--find-links")


def from_file(file: Path) -> dict[str, Any]:
    """The environment of a requirements file, a conda file, or an environment's own YAML.

    Raises NotFound, or SpecError with the file's lines.
    """
    if file.suffix == ".txt":
        return inlined({"requirements": str(file)}, Path())
    data, _ = _yaml(file)
    if "dependencies" in data:
        return inlined({"conda_file": str(file)}, Path())
    return inlined({key: value for key, value in data.items() if key != "$schema"}, file.parent)


def inlined(environment: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The environment with what is in its files in the place of their paths, which begin at
    ``base``. Raises as ``from_file``."""
    found = dict(environment)
    if isinstance(found.get("conda_file"), str):
        found["conda_file"] = _conda(base / Path(found["conda_file"]).expanduser())
    pip = found.get("pip") or []
    constraints = list(found.get("constraints") or [])
    if isinstance(pip, list | tuple):
        lines = [*_lines(map(str, pip), base, constraints)]
        if isinstance(found.get("requirements"), str):
            file = base / Path(found.pop("requirements")).expanduser()
            lines += _read(file, constraints)
        if lines:
            found["pip"] = lines
        if constraints:
            found["constraints"] = constraints
    return found


def _conda(file: Path) -> dict[str, Any]:
    from allranks.plan import conda  # lazy: few jobs have such a file
    from allranks.spec.problems import placed  # lazy: imports the models

    data, lines = _yaml(file)
    try:
        conda.read(data)
    except SpecError as error:
        raise SpecError([placed(each, lines) for each in error.problems], file=str(file)) from None
    return data


def _yaml(file: Path) -> tuple[dict[str, Any], dict[str, int]]:
    from allranks.spec import load  # lazy: imports the models

    text = load.content(file)
    data, lines = load.read(text, file=str(file))
    # `python: 3.10` is not the number 3.1.
    return {key: getattr(value, "written", value) for key, value in data.items()}, lines


def _read(file: Path, constraints: list[str], within: tuple[Path, ...] = ()) -> list[str]:
    """The lines of a requirements file, with those of the files that it names."""
    if file in within:
        raise UsageError("the file names itself", where=str(file), hint="take that `-r` out")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        hint = "relative paths begin at the file that names them"
        raise NotFound("there is no such requirements file", where=str(file), hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"the file cannot be read: {why}", where=str(file), hint="a line for each package"
        ) from None
    joined = re.sub(r"\s*\\\r?\n\s*", " ", text).splitlines()
    return list(_lines(joined, file.parent, constraints, (*within, file)))


def _lines(
    given: Any, folder: Path, constraints: list[str], within: tuple[Path, ...] = ()
) -> Iterator[str]:
    """Lines of pip with paths made absolute and files read; constraints go to their own list."""
    for each in given:
        line = re.sub(r"(^|\s+)#.*", "", each).strip()
        option = _OPTION.fullmatch(line)
        if not line:
            continue
        if option and (kind := _FILES.get(option["option"])):
            found = _read(folder / Path(option["value"].strip()).expanduser(), constraints, within)
            if kind == "-r":
                yield from found
            else:
                constraints += found
        elif option and option["option"] in _FOLDERS and "://" not in option["value"]:
            path = folder.absolute() / Path(option["value"].strip()).expanduser()
            yield f"--find-links {path}"
        elif line.startswith(("./", "../")):
            yield str((folder / line).resolve())
        else:
            yield line
