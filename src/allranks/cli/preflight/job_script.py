"""Find the Python scripts that a job's command starts, and check them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding
from allranks.core.job.command_scripts import PACKAGES, Script, scripts

READER = Path(__file__).with_name("read_script.py")
# It only parses, so it is quick except on a cold disk.
READ_TIMEOUT = 3.0


class Read(NamedTuple):
    """The result: findings, the Python of the ranks (None if none is recognized), and third-party
    modules."""

    findings: tuple[Finding, ...] = ()
    python: str | None = None
    modules: Mapping[str, Mapping[str, Any]] = {}


def look(
    command: str,
    code: Path | None,
    taken: Collection[str] | None,
    base: Mapping[str, str],
    current: bool = True,
) -> Read:
    """Look into the scripts of ``command``. ``taken`` are the files of the snapshot, None when that
    is not known; ``base`` is the environment of this machine, in which the ranks run too if it is
    the job's ``current`` one: else its word on the script is not the last."""
    named = scripts(command)
    if not named:
        text = "no Python script was recognized in the command"
        return Read((Finding("script", OK, text),))
    findings: list[Finding] = []
    modules: dict[str, Mapping[str, Any]] = {}
    for script in named:
        file = _file(script, code)
        where = str(Path(script.folder, script.path))
        if script.is_module and file is None:
            continue  # a module of the environment's, as `python -m pytest`
        if file is None or not file.is_file():
            wrong = _not_there(where, code, taken)
            if script.after:
                text = f"{wrong.found}, unless `{script.after}` creates it"
                wrong = wrong._replace(state=NOTE, found=text)
            findings.append(wrong)
            continue
        if taken is not None and code is not None and _left_out(file, code, taken):
            hint = "take it out of .amlignore, or out of git's rules: git check-ignore -v FILE"
            findings.append(Finding("script", BAD, f"{where} is excluded from the code", hint))
            continue
        folder = (code if code.is_dir() else code.parent) if code is not None else file.parent
        python = script.python if current else "python"
        read = list(_read(file, where, folder, python, base, modules))
        # With another Python than the job's, nothing is certain.
        findings += read if current else [_elsewhere(each) for each in read]
    return Read(tuple(findings), named[0].python, modules)


def _file(script: Script, code: Path | None) -> Path | None:
    root = (code if code.is_dir() else code.parent) if code is not None else Path("/nonexistent")
    folder = root / script.folder
    if not script.is_module:
        return folder / script.path
    base = folder.joinpath(*script.path.split("."))
    for file in (base.with_suffix(".py"), base / "__main__.py"):
        if file.is_file():
            return file
    return None


def _left_out(file: Path, code: Path, taken: Collection[str]) -> bool:
    root = code if code.is_dir() else code.parent
    name = os.path.relpath(os.path.abspath(file), root)
    return not name.startswith("..") and name not in taken


def _not_there(where: str, code: Path | None, taken: Collection[str] | None) -> Finding:
    import difflib  # lazy: only for missing files

    if code is None and not os.path.isabs(where):
        text = f"{where} is missing: the job has no `code`"
        return Finding("script", BAD, text, "add its folder: `code: .`")
    same = [name for name in taken or () if os.path.basename(name) == os.path.basename(where)]
    near = same or difflib.get_close_matches(where, list(taken or ()), 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "paths in the command start at the code folder"
    return Finding("script", BAD, f"{where} not found in {code}", hint)


def _elsewhere(finding: Finding) -> Finding:
    if finding.state != BAD:
        return finding
    return finding._replace(state=NOTE, hint="the job's environment has its own Python")


def _read(
    file: Path,
    where: str,
    folder: Path,
    python: str,
    base: Mapping[str, str],
    modules: dict[str, Mapping[str, Any]],
) -> Iterator[Finding]:
    program = shutil.which(python, path=base.get("PATH"))
    if program is None:
        hint = "activate the environment that has it, or use its path in the command"
        yield Finding("script", BAD, f"`{python}`, which runs {where}, is not found", hint)
        return
    try:
        done = subprocess.run(
            [program, "-B", str(READER)],
            input=json.dumps({"script": str(file), "folder": str(folder)}),
            env={**base},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=READ_TIMEOUT,
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        yield Finding("script", NOTE, f"{where} could not be read by {program}", f"try: {program}")
        return
    wrong = answer["error"]
    if wrong is not None:
        place = f"{wrong['file']}:{wrong['line']}" if wrong["line"] else wrong["file"]
        text = f"{place} does not parse on Python {answer['python']}: {wrong['message']}"
        yield Finding(
            "script", BAD, text, "fix that line, or use the Python version it is written for"
        )
    else:
        yield Finding("script", OK, f"{where} parses on Python {answer['python']}")
    for name, place in answer["imports"].items():
        modules.setdefault(name, {**place, "here": name not in answer["missing"]})


def missing(name: str, place: Mapping[str, Any], where: str, node: int | None = None) -> Finding:
    """A module that the script imports and the environment lacks."""
    text = f"{place['file']}:{place['line']} imports {name}, which {where} does not have"
    is_known = name in PACKAGES
    hint = f"pip install {PACKAGES.get(name, name.replace('_', '-'))}, in the job's environment"
    if not is_known:
        hint += "; ignore this if the script sets its path itself"
    return Finding("modules", BAD if is_known and place["needed"] else NOTE, text, hint, node)
