"""Find the Python scripts that a job's command starts, and check them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding

READER = Path(__file__).with_name("read_script.py")
# It only parses, so it is quick except on a cold disk.
READ_TIMEOUT = 3.0

_PYTHON = re.compile(r"python[0-9.]*")
_REFERENCE = re.compile(r"\$\{\{.*?\}\}")
# As in `spec.shell.expressions`: without a reference inside, it is bash's own.
_OPTIONAL = re.compile(r"\$\[\[((?:(?!\]\]).)*\$\{\{.*?)\]\]", re.DOTALL)
# Parts that only a shell or a node can resolve: variables, command output, patterns, references.
_UNKNOWN = re.compile(r"[$`*?]")
# Commands that may add programs to PATH.
_MAY_INSTALL = frozenset(
    ["source", ".", "module", "conda", "pip", "pip3", "uv", "make", "export", "apt", "apt-get"]
)
# Commands that create no files to run.
_IDLE = frozenset(["cd", "export", "set", "unset", "ulimit", "echo", "true", "[", "test", "sleep"])
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Prefixes of commands, and programs that start a Python script.
_BEFORE = frozenset(
    ["exec", "time", "nohup", "env", "command", "then", "do", "else", "if", "while", "!", "{"]
)
_LAUNCHERS = frozenset(
    ["torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun", "mpiexec", "srun", "coverage"]
)
_LAUNCHER_MODULES = re.compile(
    r"torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.\w+"
)
_WITH_VALUE = frozenset(["-W", "-X", "--check-hash-based-pycs"])

# Packages of frameworks whose names differ from their modules.
PACKAGES: Mapping[str, str] = dict(  # noqa: C408 (names, as `import` has them)
    torch="torch",
    torchvision="torchvision",
    tensorflow="tensorflow",
    jax="jax",
    flax="flax",
    horovod="horovod",
    deepspeed="deepspeed",
    accelerate="accelerate",
    transformers="transformers",
    lightning="lightning",
    pytorch_lightning="pytorch-lightning",
    mpi4py="mpi4py",
    ray="'ray[default]'",
    mlflow="mlflow",
    numpy="numpy",
    pandas="pandas",
    sklearn="scikit-learn",
    cv2="opencv-python",
    PIL="pillow",
    yaml="pyyaml",
)


class Script(NamedTuple):
    """A script or module in the command, in ``folder`` of the code. It may be created by the
    command ``after`` which it is started."""

    python: str
    path: str
    folder: str = ""
    is_module: bool = False
    after: str = ""


class Read(NamedTuple):
    """The result: findings, the Python of the ranks (None if none is recognized), and third-party
    modules."""

    findings: tuple[Finding, ...] = ()
    python: str | None = None
    modules: Mapping[str, Mapping[str, Any]] = {}


def scripts(command: str) -> list[Script]:
    """The Python scripts that a bash command names explicitly."""
    result: list[Script] = []
    folder = after = ""
    for simple in _commands(command):
        if simple[0] in ("cd", "pushd"):
            if len(simple) != 2 or _UNKNOWN.search(simple[1]) or "(" in command:
                break  # the current folder is unknown from here on
            folder = os.path.normpath(os.path.join(folder, simple[1]))
        elif os.path.basename(simple[0]) in ("bash", "sh") and "-c" in simple[:-1]:
            inner = scripts(simple[simple.index("-c") + 1])
            result += [s._replace(folder=os.path.join(folder, s.folder)) for s in inner]
        elif started := list(_script(simple)):
            certain = [s for s in started if not _UNKNOWN.search(s.python + s.path)]
            result += [s._replace(folder=folder, after=after) for s in certain]
        elif simple[0] not in _IDLE:
            after = simple[0]
    return list(dict.fromkeys(result))


def programs(command: str) -> list[str]:
    """Programs that the command needs on PATH, up to a command that may add more."""
    names = []
    for simple in _commands(command):
        name = simple[0]
        if name in _MAY_INSTALL or "pip" in simple or "()" in command or name == "case":
            break
        if "/" not in name and not _UNKNOWN.search(name):
            names.append(name)
    return list(dict.fromkeys(names))


def as_shell(command: str) -> str:
    """The command with variables instead of references."""
    return _REFERENCE.sub("$_", _OPTIONAL.sub(r" \1 ", command))


def _commands(command: str) -> list[list[str]]:
    """Its simple commands; none if it cannot be parsed."""
    text = as_shell(command).replace("\\\n", " ")
    if "<<" in text:
        return []  # a document within the command
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        return list(_simple(list(lexer)))
    except ValueError:
        return []


def _simple(words: list[str]) -> Iterator[list[str]]:
    """Simple commands without assignments, redirections, comments and prefixes."""
    current: list[str] = []
    skip = comment = False
    for word in [*words, ";"]:
        punctuation = set(word) if word and set(word) <= set("<>&|;()\n") else set()
        if "\n" in punctuation:
            comment = False
        if skip or comment:
            skip = False
        elif punctuation & set("<>"):
            skip = True
        elif punctuation:
            if current:
                yield current
            current = []
        elif word.startswith("#"):
            comment = True
        elif current or not (_ASSIGNMENT.match(word) or word in _BEFORE):
            current.append(word)


def _script(words: list[str]) -> Iterator[Script]:
    name = os.path.basename(words[0])
    if _PYTHON.fullmatch(name):
        yield from _of_python(words)
    elif name in _LAUNCHERS:
        for index, word in enumerate(words[1:], 1):
            if _PYTHON.fullmatch(os.path.basename(word)):
                yield from _of_python(words[index:])
                return
            if word.endswith(".py"):
                yield Script("python", word)
                return
    elif name.endswith(".py"):
        yield Script("python", words[0])


def _of_python(words: list[str]) -> Iterator[Script]:
    rest = iter(words[1:])
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif word == "-m":
            module = next(rest, "")
            if not _LAUNCHER_MODULES.fullmatch(module):
                yield Script(words[0], module, is_module=True)
                return
            for later in rest:
                if later.endswith(".py"):
                    yield Script(words[0], later)
                    return
        elif word == "-c" or word == "-":
            return
        elif not word.startswith("-"):
            yield Script(words[0], word)
            return


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
