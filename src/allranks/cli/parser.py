"""The parser of a command: argparse with our error messages and examples."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from allranks.cli.commands import COMMANDS
from allranks.errors import Problem, UsageError
from allranks.spec.fields.durations import UNITS, seconds_of

# Options whose value may begin with a dash, which argparse takes for another option.
_DASHED = ("--sort",)


class Parser(argparse.ArgumentParser):
    """Raises UsageError with a hint where argparse would exit."""

    _is_for_help = False

    def __init__(self, name: str, description: str) -> None:
        super().__init__(prog=f"allranks {name}", description=description, allow_abbrev=False)
        self.name = name
        # Whether all words but --help are those of another program.
        self.is_for_another = False
        self._words: list[str] = []

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args)
        self._words = words
        if self.is_for_another and words[:1] not in (["-h"], ["--help"]):
            return super().parse_args(["--", *words], namespace)
        for index in range(len(words) - 1, 0, -1):
            option = words[index - 1]
            if option in _DASHED and "--" not in words[: index + 1]:
                words[index - 1 : index + 1] = [f"{option}={words[index]}"]
        return super().parse_args(words, namespace)

    def _parse_optional(self, arg_string: str) -> Any:
        # `-:PATH`, a path in the newest job, is not an option.
        return None if arg_string.startswith("-:") else super()._parse_optional(arg_string)

    def _get_formatter(self) -> argparse.HelpFormatter:
        if self._is_for_help:
            return super()._get_formatter()
        # argparse makes one for each option, to check it, and imports shutil for its width.
        return argparse.HelpFormatter(self.prog, width=80)

    def format_help(self) -> str:
        from allranks.cli.examples import EXAMPLES  # lazy: only for `--help`

        self._is_for_help = True
        lines = (f"{self.prog} {each}".rstrip() for each in EXAMPLES[self.name])
        return super().format_help() + "\nexamples:\n" + "".join(f"  {line}\n" for line in lines)

    def error(self, message: str) -> NoReturn:
        # argparse names the Python function that rejected a value.
        rejected = re.search(r"invalid _?(\w+) value: (.*)", message)
        if rejected is not None:
            kind = {"int": "a whole number", "float": "a number"}.get(
                rejected[1], f"a valid {rejected[1]}"
            )
            message = f"{message[: rejected.start()]}{rejected[2]} is not {kind}"
        hint = f"`{self.prog} --help` shows the options"
        if message.startswith("argument -d/--distribution: expected"):
            hint = f"to submit the job and return at once: `--detach`; {hint}"
        unknown = re.match(r"unrecognized arguments: (-[^\s=]+)", message)
        # Before a command without `--`, it is more likely an option of the command.
        runs = self.name == "run" and "--" not in self._words
        if unknown is not None and (near := self._nearest_option(unknown[1], 0.8 if runs else 0.7)):
            hint = f"did you mean `{near}`? {hint}"
        elif unknown is not None and runs:
            command = "allranks run [OPTIONS] -- COMMAND…"
            hint = f"put `--` before the command, and its options after it: {command}; {hint}"
        file = next((word for word in self._words if word.endswith((".yml", ".yaml"))), None)
        if file is not None and (
            message.endswith("required: -f/--file") or (runs and message.endswith("arguments: -f"))
        ):
            import shlex  # lazy: only for such a mistake

            name = "job create" if runs else self.name
            hint = f"give the file: allranks {name} -f {shlex.quote(file)}"
        raise UsageError(message, hint=hint)

    def _nearest_option(self, option: str, cutoff: float) -> str | None:
        import difflib  # lazy: only for a misspelt option

        # Without their dashes, which would make all of them alike.
        names = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        near = difflib.get_close_matches(option.lstrip("-"), names, 1, cutoff)
        return f"--{near[0]}" if near else None


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return count


def duration(text: str) -> float:
    """The seconds of `90`, `30m`, `1.5h`, …. Raises ArgumentTypeError."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def days(text: str) -> float:
    """The days of `90`, `12h`, `4w`, …. Raises ArgumentTypeError."""
    try:
        return seconds_of(text, "d") / UNITS["d"]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def refuse_with(option: str, others: Mapping[str, object]) -> None:
    """Raises UsageError for the first of ``others`` that was given, each by its option."""
    for other, value in others.items():
        if value is not None and value is not False and value != []:
            hint = "leave one of them out"
            raise UsageError(f"not available with {option}", where=other, hint=hint)


def option_of(key: str, options: Mapping[str, str]) -> str:
    """The option that sets a key of a file: by its name unless ``options`` has another one."""
    return options.get(key) or f"--{key.replace('_', '-')}"


def with_option(problem: Problem, option: str) -> Problem:
    """A problem of a key in a file, with the option that was typed instead."""
    key = problem.where
    message = problem.message.replace(f"`{key}` is", "is")
    hint = problem.hint and problem.hint.replace(f"`{key}: …`", f"`{option}`")
    return problem._replace(message=message, where=option, hint=hint)


def parser_of(name: str) -> Parser:
    """Build the parser of a command, which imports its module."""
    command = COMMANDS[name]
    parser = Parser(name, command.help)
    command.load("_options")(parser)
    if not command.plain:
        parser.add_argument("--json", action="store_true", help="print JSON on stdout")
        parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no hints")
        parser.add_argument("--no-color", action="store_true", help="no colours (also NO_COLOR=1)")
    return parser
