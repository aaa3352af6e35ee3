"""Which commands can start warm, and which variables matter to imported modules. Pure.

A warm start forks a rank from a process that has imported its modules, so the rank's command must
be one call of Python. Everything else starts cold.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allranks.errors import AllranksError


class Cold(AllranksError):
    """The ranks have to start without a warm server; the message is the reason."""


class Call(NamedTuple):
    """One call of Python: ``python OPTIONS script.py ARGUMENTS``. ``kind`` is `file`, `module` (-m)
    or `code` (-c), ``target`` what it names; ``arguments`` are those of the script. ``variables``
    are set before it."""

    python: str
    options: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """The call as Python sees it."""
        option = {"file": [], "module": ["-m"], "code": ["-c"]}[self.kind]
        return [self.python, *self.options, *option, self.target, *self.arguments]


_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CD = re.compile(r"\s*cd\s+([\w./-]+)\s*&&\s*")
# Options that change nothing that a started interpreter could not show; those with a value.
_OPTIONS, _WITH_VALUE = frozenset("uOBsbqP"), ("-X", "-W")
# What the shell replaces in a word.
_EXPANDED = re.compile(r"[$*?\[~{]")

# Variables that libraries read as they are imported, or that the dynamic linker or Python read.
_IMPORT_TIME = re.compile(
    r"(?:PYTHON|LD_|LC_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|DNNL_|ONEDNN_|ATEN_|C10_"
    r"|CUDA_|CUDNN_|CUBLAS_|NVIDIA_|ROCR_|HIP_|HSA_|TORCH|PYTORCH_|TRITON_|TF_|XLA_|JAX_|KERAS_"
    r"|HF_|TRANSFORMERS_|TOKENIZERS_|ACCELERATE_|DS_|NUMBA_|MPL|MALLOC_|GLIBC_)"
    r"|(?:PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|TZ|VIRTUAL_ENV|CONDA_PREFIX)$"
)
# Of those, what a process group reads as it starts: it differs between ranks and attempts.
_OF_RANK = frozenset(
    ("TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_NUM_PROCESSES")
) | {"JAX_PROCESS_ID", "TORCHELASTIC_RUN_ID"}
# What a process that outlives the job must not keep.
_SECRET = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD)$")


def import_time(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a rank's environment that may change what imported modules do."""
    return {
        name: value
        for name, value in env.items()
        if _IMPORT_TIME.match(name) and name not in _OF_RANK and not _SECRET.search(name)
    }


def split_folder(command: str) -> tuple[str, str]:
    """The folder of a leading ``cd FOLDER &&``, or an empty text, and the rest."""
    match = _CD.match(command)
    return (match[1], command[match.end() :]) if match else ("", command)


def expands(command: str) -> bool:
    """Whether a shell may replace something in it."""
    return _EXPANDED.search(command) is not None


def expect_simple(command: str) -> None:
    """Raise Cold if a shell would do more with the command than start one program."""
    quote, before, at = "", " ", 0
    text = command.strip()
    while at < len(text):
        char = text[at]
        if quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            at += 1
        elif char == "`" or text.startswith("$(", at):
            raise Cold("the command runs another one")
        elif quote:
            quote = "" if char == '"' else quote
        elif char in "'\"":
            quote = char
        elif char in ";&|<>()\n" or (char == "#" and before.isspace()):
            raise Cold("the command is more than one call of Python")
        before, at = char, at + 1
    if quote:
        raise Cold("the command has an open quote")


def read_call(words: Sequence[str]) -> Call:
    """Read the words of a simple command. Raises Cold."""
    rest, variables = list(words), {}
    while rest and (match := _VARIABLE.fullmatch(rest[0])):
        variables[match[1]] = match[2]
        del rest[0]
    if rest[:1] == ["exec"]:
        del rest[0]
    if not rest or not _PYTHON.fullmatch(rest[0]):
        raise Cold(f"the command does not start with `python` but with `{(rest or [''])[0]}`")
    python = rest.pop(0)
    options = list[str]()
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-m", "-c"):
            if not rest:
                break
            kind = "module" if option == "-m" else "code"
            return Call(python, (*options,), kind, rest[0], (*rest[1:],), variables)
        if option in _WITH_VALUE and rest:
            options += [option, rest.pop(0)]
        elif (set(option[1:]) <= _OPTIONS and len(option) > 1) or option[:2] in _WITH_VALUE:
            options.append(option)
        else:
            raise Cold(f"Python gets the option `{option}`")
    if not rest:
        raise Cold("the command names no script")
    return Call(python, (*options,), "file", rest[0], (*rest[1:],), variables)


def read_command(command: str) -> tuple[str, Call]:
    """The folder and the call of a command as far as they are known before its variables are.
    Raises Cold."""
    folder, rest = split_folder(command)
    expect_simple(rest)
    try:
        words = shlex.split(rest.replace("\\\n", " "))
    except ValueError as error:
        raise Cold(f"the command cannot be split into words: {error}") from None
    call = read_call(words)
    if expands(" ".join((call.python, *call.options, *call.variables.values()))):
        raise Cold("the shell chooses the Python, or its options and variables")
    return folder, call


def own_module(names: Sequence[str], loaded: frozenset[str]) -> str | None:
    """The first of the ``names`` in a script's folder that is also the name of a loaded module:
    Python started cold would import the script's. ``loaded`` are top-level names."""
    for name in sorted(names):
        if name.partition(".")[0] in loaded and (name.endswith((".py", ".so")) or "." not in name):
            return name
    return None
