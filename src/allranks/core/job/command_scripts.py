"""The scripts and programs that a job's command names, read as a shell would. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

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
_SHELLS = frozenset(["bash", "sh", "source", "."])
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


def scripts(command: str) -> list[Script]:
    """The Python scripts that a bash command names explicitly."""
    result: list[Script] = []
    after = ""
    for folder, simple in _in_folders(command):
        if started := list(_script(simple)):
            certain = [s for s in started if not _UNKNOWN.search(s.python + s.path)]
            result += [s._replace(folder=folder, after=after) for s in certain]
        elif simple[0] not in _IDLE:
            after = simple[0]
    return list(dict.fromkeys(result))


def shell_scripts(command: str) -> list[str]:
    """The shell scripts that a bash command names explicitly, from the code's folder."""
    result: list[str] = []
    for folder, simple in _in_folders(command):
        is_shell = posixpath.basename(simple[0]) in _SHELLS
        words = [word for word in simple[is_shell:] if not word.startswith("-")]
        if words and not _UNKNOWN.search(words[0]) and (is_shell or words[0].endswith(".sh")):
            result.append(posixpath.normpath(posixpath.join(folder, words[0])))
    return list(dict.fromkeys(result))


def _in_folders(command: str, folder: str = "") -> Iterator[tuple[str, list[str]]]:
    """Its simple commands, also those of `bash -c`, with the folders that they run in, up to where
    that is unknown."""
    for simple in _commands(command):
        if simple[0] in ("cd", "pushd"):
            if len(simple) != 2 or _UNKNOWN.search(simple[1]) or "(" in command:
                return
            folder = posixpath.normpath(posixpath.join(folder, simple[1]))
        elif posixpath.basename(simple[0]) in ("bash", "sh") and "-c" in simple[:-1]:
            yield from _in_folders(simple[simple.index("-c") + 1], folder)
        else:
            yield folder, simple


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


def what_runs(command: str) -> list[str]:
    """What tells commands apart whose arguments may differ: the Python scripts, or else the shell
    scripts, or else the programs."""
    python = [script.path for script in scripts(command)]
    return python or shell_scripts(command) or programs(command) or [command]


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
    name = posixpath.basename(words[0])
    if _PYTHON.fullmatch(name):
        yield from _of_python(words)
    elif name in _LAUNCHERS:
        for index, word in enumerate(words[1:], 1):
            if _PYTHON.fullmatch(posixpath.basename(word)):
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
