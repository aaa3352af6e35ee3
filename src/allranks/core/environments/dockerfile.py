"""A Dockerfile as an environment, for computes without containers. Pure.

FROM, COPY, ENV, WORKDIR, and RUN with pip or conda have a counterpart. What only says how a
container is run or described is left out, and named. Anything else is refused with its line.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from allranks.errors import Problem, SpecError

# A job has a command and a user of its own, in a container, too.
_LEFT_OUT = (
    *("ARG", "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL"),
    *("USER", "VOLUME"),
)
# Commands beside those of pip and conda that leave nothing that a job could miss.
_WITHOUT_EFFECT = re.compile(
    r"(rm|mkdir|echo|true|cd|set|ls|chmod|chown|:)\b|"
    r"apt(-get)? (-\S+ )*(update|clean|autoremove)\b|"
    r"(conda|mamba) (clean|init|activate|config)\b|pip\d? (cache|check|list|--version)|"
    r"(source|\.) \S*(conda|activate)\S*"
)
_PIP = re.compile(r"(?:\S*/)?(?:python[\d.]*\s+-m\s+)?(?:\S*/)?pip[\d.]*\s+install\b")
_CONDA_FILE = re.compile(r"(?:\S*/)?(?:conda|mamba)\s+env\s+(?:create|update)\b")
_CONDA = re.compile(r"(?:\S*/)?(?:conda|mamba|micromamba)\s+install\b")
# Variables that say where an image has its programs.
_PLACES = ("PATH", "LD_LIBRARY_PATH", "CONDA_", "PYTHONPATH", "AZUREML_CONDA_ENVIRONMENT_PATH")
_PIP_FLAGS = re.compile(
    r"--no-cache(-dir)?|-q+|--quiet|-v+|-U|--upgrade|--user|--disable-pip-version-check|"
    r"--(default-)?timeout=.*|--trusted-host=.*|--break-system-packages"
)
# As in a requirements file; packages of a build context are files.
_PIP_LINES = {
    **dict.fromkeys(("-r", "--requirement"), "-r"),
    **dict.fromkeys(("-c", "--constraint"), "-c"),
    **dict.fromkeys(("-i", "--index-url"), "--index-url"),
    "--extra-index-url": "--extra-index-url",
    **dict.fromkeys(("-f", "--find-links"), "--find-links"),
}


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: its word, what follows, and the line that it begins at."""

    word: str
    rest: str
    line: int


def environment_of(text: str) -> dict[str, Any]:
    """The keys of an environment that has what the Dockerfile installs: ``image`` (its base),
    ``pip``, ``conda_file``; and ``left_out``, the words of instructions that are not used.
    Paths are those of the build context.

    Raises SpecError with the lines that have no counterpart.
    """
    reader = _Reader()
    problems = []
    for instruction in instructions(text):
        try:
            reader.take(instruction)
        except (_Refused, ValueError) as error:
            why = str(error) if isinstance(error, _Refused) else "cannot be read"
            shown = f"{instruction.word} {instruction.rest}"
            message = f"`{shown[:100]}` {why}"
            hint = "enable containers, or list packages instead of `build`"
            problems.append(Problem(message, None, instruction.line, hint))
    if not problems and not reader.image:
        problems.append(Problem("the Dockerfile has no FROM", None, 1, "begin it with FROM IMAGE"))
    if problems:
        raise SpecError(problems)
    return reader.environment()


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions, with their continued lines joined."""
    kept, start = "", 0
    for number, row in enumerate([*text.splitlines(), ""], 1):
        if row.lstrip().startswith("#") or (not kept and not row.strip()):
            continue
        start = start or number
        goes_on = row.rstrip().endswith("\\")
        kept += f"{row.rstrip()[:-1]} " if goes_on else row
        if not goes_on:
            word, _, rest = kept.strip().partition(" ")
            yield Instruction(word.upper(), " ".join(rest.split()), start)
            kept, start = "", 0


class _Refused(Exception):
    """Why an instruction has no counterpart."""


class _Reader:
    def __init__(self) -> None:
        self.image = ""
        self._left_out: dict[str, None] = {}
        self._pip: list[str] = []
        self._conda: list[str] = []
        self._conda_file = ""
        self._variables: dict[str, str] = {}
        self._folder = "/"
        # What was copied: paths in the image, and those in the build context.
        self._copied: dict[str, str] = {}

    def environment(self) -> dict[str, Any]:
        keys: dict[str, Any] = {"image": self.image}
        if self._pip:
            keys["pip"] = self._pip
        if self._conda_file:
            keys["conda_file"] = self._conda_file
        elif self._conda or (self._variables and self._pip):
            keys["conda_file"] = {"dependencies": self._conda, "variables": self._variables}
        if self._left_out:
            keys["left_out"] = [*self._left_out]
        return keys

    def take(self, instruction: Instruction) -> None:
        if instruction.word == "FROM":
            self._from(instruction.rest)
        elif instruction.word == "WORKDIR":
            self._folder = self._in_image(instruction.rest)
        elif instruction.word == "COPY":
            self._copy(instruction.rest)
        elif instruction.word == "ENV":
            self._env(instruction.rest)
        elif instruction.word == "RUN":
            self._run(instruction.rest)
        elif instruction.word in _LEFT_OUT:
            self._left_out[instruction.word] = None
        else:
            raise _Refused("has no counterpart without containers")

    def _from(self, rest: str) -> None:
        words = [word for word in rest.split() if not word.startswith("--")]
        if self.image:
            raise _Refused("begins another stage")
        if not words or "$" in words[0]:
            raise _Refused("names no image")
        self.image = words[0]

    def _copy(self, rest: str) -> None:
        words = [word for word in shlex.split(rest) if not word.startswith(("--chown", "--chmod"))]
        if len(words) < 2 or words[0].startswith(("[", "--")):
            raise _Refused("names no files of the build context")
        *sources, target = words
        for source in sources:
            place = self._in_image(target)
            # A file's copy is ``target`` itself, or lies in it, where that is a folder.
            name = posixpath.basename(source.rstrip("/"))
            self._copied[posixpath.normpath(posixpath.join(place, name))] = source
            self._copied[place] = source

    def _env(self, rest: str) -> None:
        words = shlex.split(rest)
        pairs = [word.partition("=")[::2] for word in words]
        if words and "=" not in words[0]:
            pairs = [(words[0], " ".join(words[1:]))]
        for name, value in pairs:
            if not name.startswith(_PLACES) and "$" not in value:
                self._variables[name] = value

    def _run(self, rest: str) -> None:
        rest = re.sub(r"^(--\S+ )+", "", rest)
        for command in re.split(r"\s*(?:&&|;|\|\|)\s*", rest):
            command = re.sub(r"^(sudo|conda run (-n \S+|-p \S+)) ", "", command.strip())
            if not command or _WITHOUT_EFFECT.match(command):
                continue
            if match := _PIP.match(command):
                self._pip += self._pip_lines(shlex.split(command[match.end() :]))
            elif match := _CONDA_FILE.match(command):
                self._conda_file = self._file_of(shlex.split(command[match.end() :]))
            elif match := _CONDA.match(command):
                self._conda += _conda_packages(shlex.split(command[match.end() :]))
            else:
                raise _Refused("has no counterpart without containers")

    def _pip_lines(self, words: Sequence[str]) -> Iterator[str]:
        remaining = iter(words)
        for word in remaining:
            option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if option in _PIP_LINES:
                value = value if equals else next(remaining, "")
                kind = _PIP_LINES[option]
                yield f"{kind} {self._source(value) if kind in ('-r', '-c') else value}"
            elif _PIP_FLAGS.fullmatch(word):
                continue
            elif word.startswith("-"):
                raise _Refused(f"has an option of pip's that cannot be had: {word}")
            elif word.startswith((".", "/")) or "$" in word:
                raise _Refused(f"installs {word}, which is no package of an index")
            elif word not in ("pip", "setuptools", "wheel"):
                yield word

    def _file_of(self, words: Sequence[str]) -> str:
        for option, value in zip(words, [*words[1:], ""], strict=True):
            if option in ("-f", "--file"):
                return self._source(value)
            if option.startswith("--file="):
                return self._source(option.partition("=")[2])
        raise _Refused("names no file")

    def _source(self, path: str) -> str:
        """The file of the build context that was copied to ``path``."""
        place = self._in_image(path)
        if place in self._copied:
            return posixpath.normpath(self._copied[place])
        for folder in sorted(self._copied, key=len, reverse=True):
            if place.startswith(f"{folder.rstrip('/')}/"):
                rest = place[len(folder.rstrip("/")) + 1 :]
                return posixpath.normpath(posixpath.join(self._copied[folder], rest))
        return place.lstrip("/")

    def _in_image(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder, path))


def _conda_packages(words: Sequence[str]) -> Iterator[str]:
    """The packages of `conda install`, without its options."""
    remaining = iter(words)
    for word in remaining:
        if word in ("-c", "--channel", "-n", "--name", "-p", "--prefix"):
            next(remaining, "")
        elif not word.startswith("-"):
            yield word
