"""The parser of a command: argparse, with errors that name the option and how to mend them."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from allranks.cli.commands import COMMANDS
from allranks.errors import UsageError

# Options whose value may begin with a dash, which argparse would take for another option.
_DASHED = ("--sort",)


class Parser(argparse.ArgumentParser):
    """argparse, with errors that say where and how to mend, as all of ours do."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(prog=f"allranks {name}", description=description, allow_abbrev=False)
        self.name = name

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args)
        for index in range(len(words) - 1, 0, -1):
            before = words[index - 1]
            if before in _DASHED and "--" not in words[: index + 1]:
                words[index - 1 : index + 1] = [f"{before}={words[index]}"]
        return super().parse_args(words, namespace)

    def format_help(self) -> str:
        """The help, and examples as they are typed."""
        from allranks.cli.examples import EXAMPLES  # lazy: only for `--help`

        lines = (f"{self.prog} {each}".rstrip() for each in EXAMPLES[self.name])
        return super().format_help() + "\nexamples:\n" + "".join(f"  {each}\n" for each in lines)

    def error(self, message: str) -> NoReturn:
        """argparse names the Python function that refused a value."""
        found = re.search(r"invalid _?(\w+) value: (.*)", message)
        if found is not None:
            what = {"int": "whole number", "float": "number"}.get(found[1], found[1])
            message = f"{message[: found.start()]}{found[2]} is no {what}"
        hint = f"`{self.prog} --help` shows what it takes"
        unknown = re.match(r"unrecognized arguments: (-[^\s=]+)", message)
        if unknown is not None and (near := self._nearest_option(unknown[1])):
            hint = f"did you mean `{near}`? {hint}"
        raise UsageError(message, hint=hint)

    def _nearest_option(self, option: str) -> str | None:
        import difflib  # lazy: only when an option was misspelt

        known = [each for each in self._option_string_actions if each.startswith("--")]
        near = difflib.get_close_matches(option, known, 1)
        return near[0] if near else None


def parser_of(name: str, module: Any) -> Parser:
    """The parser of a command, whose module has been imported."""
    command = COMMANDS[name]
    parser = Parser(name, command.help)
    getattr(module, f"{command.function}_options")(parser)
    if not command.plain:
        parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")
        parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no hints")
        parser.add_argument("--no-color", action="store_true", help="no colours (also NO_COLOR=1)")
    return parser
