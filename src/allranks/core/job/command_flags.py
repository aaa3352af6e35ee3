"""The parameters that a command line gives a script: `--lr 0.1`, `optim.lr=0.1`. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from typing import NamedTuple

from allranks.masking import looks_secret, without_credentials

_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
# Hydra's overrides; only behind a script, as `NAME=value program` sets a variable.
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# What ends a simple command; a line does, too.
_OPERATORS = "();<>|&\n"
# What follows these is a filter or a file.
_NO_COMMAND = ("|", "|&", "<", ">", ">>", ">&", "<<")
# Modules that are nobody's training script, beside Python's own.
_TOOLS = ("pip", "pytest", "tensorboard", "jupyter", "jupyterlab", "notebook", "IPython")


class CommandFlags(NamedTuple):
    """``parameters`` by name, named as argparse does; ``rest``: the command without them."""

    parameters: dict[str, str]
    rest: str


def command_flags(command: str) -> CommandFlags:
    """Those of the scripts in a command, not of launchers before them or of Python's own modules.
    What only a shell or an expression knows is left out, and what looks like a secret."""
    words = _words(command)
    parameters: dict[str, str] = {}
    rest = words[:]
    for begin, end, is_script in _arguments(words):
        at = begin
        while at < end:
            name, value, after = _parameter(words, at, end, is_script)
            if name and "$" not in value and "`" not in value and not looks_secret(name):
                text = without_credentials(value)
                parameters[name] = f"{parameters[name]} {text}" if name in parameters else text
                rest[at:after] = [""] * (after - at)
            at = after
    return CommandFlags(parameters, " ".join(word for word in rest if word))


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a shell takes it, such as a document after <<
        return [command]


def _arguments(words: list[str]) -> list[tuple[int, int, bool]]:
    """Where the arguments of scripts begin and end, and whether it is a script: without one it is
    the last command of the line, before its pipes."""
    ends = [at for at, word in enumerate(words) if word and all(c in _OPERATORS for c in word)]
    commands = [
        (begin + 1, end)
        for begin, end in zip([-1, *ends], [*ends, len(words)], strict=True)
        if begin + 1 < end and (begin < 0 or words[begin] not in _NO_COMMAND)
    ]
    commands = [command for command in commands if not _is_tool(words, *command)]
    scripts = [(at, end, True) for begin, end in commands if (at := _script(words, begin, end))]
    if scripts or not commands:
        return scripts
    begin, end = commands[-1]
    return [(begin + 1, end, False)]


def _script(words: list[str], begin: int, end: int) -> int:
    """Where the arguments of a command's script begin; 0 if it runs none."""
    for at in range(begin, end):
        if words[at].endswith(".py"):
            return at + 1
    module = _module(words, begin, end)
    return module + 1 if module else 0


def _module(words: list[str], begin: int, end: int) -> int:
    """Where the name of the module is that a command runs; 0 if it runs none. A launcher's module
    comes before the one that it runs."""
    return max((at + 1 for at in range(begin + 1, end - 1) if words[at] == "-m"), default=0)


def _is_tool(words: list[str], begin: int, end: int) -> bool:
    """Whether a command runs a module that is not the user's, and no script with it."""
    module = _module(words, begin, end)
    top = words[module].partition(".")[0] if module else ""
    has_script = any(word.endswith(".py") for word in words[begin:end])
    return (top in _TOOLS or top in sys.stdlib_module_names) and not has_script


def _parameter(words: list[str], at: int, end: int, is_script: bool) -> tuple[str, str, int]:
    """The name and value of a parameter, and where what follows begins; no name: it is none."""
    if is_script and (override := _OVERRIDE.fullmatch(words[at])):
        return override[1], override[2], at + 1
    flag = _FLAG.fullmatch(words[at])
    after = at + 1
    if flag is None:
        return "", "", after
    name = flag[1].replace("-", "_")
    if flag[2] is not None:
        return name, flag[2], after
    if after < end and _is_value(words[after]):
        after += 1
        # A list of numbers: `--layers 64 64`.
        while after < end and all(map(_NUMBER.fullmatch, words[after - 1 : after + 1])):
            after += 1
    return name, " ".join(words[at + 1 : after]) or "true", after


def _is_value(word: str) -> bool:
    return not word.startswith("-") or bool(_NUMBER.fullmatch(word))
