"""`allranks`: find the command, run it, say what went wrong.

A command's module is imported when it is chosen, and its parser built then: `allranks --help` and
`allranks run` are typed all day and must not pay for the rest.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from allranks.cli import job_names
from allranks.cli.commands import COMMANDS, COMPLETE, Command, chosen, groups, in_group
from allranks.cli.output import colours
from allranks.cli.output.errors import print_error
from allranks.cli.parser import parser_of
from allranks.errors import AllranksError, UsageError
from allranks.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code. Nothing that goes wrong here is a stack trace."""
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words[: words.index("--")] if "--" in words else words
    as_json = "--json" in ours
    if "--no-color" in ours:
        colours.switch_off()
        words = words[1:] if words[0] == "--no-color" else words
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except AllranksError as error:
        print_error(error, as_json)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has left (`| head`): no reason to complain, nor to be told again
        # when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        said = (error.strerror or str(error)).lower()
        where = str(error.filename) if error.filename else None
        hint = "is there room on the disk, and does the folder you are in still exist?"
        print_error(AllranksError(f"the system refused: {said}", where=where, hint=hint), as_json)
        return 1


def _open_closed_streams() -> None:
    """Give 0, 1 and 2 to /dev/null where the caller closed them (`>&-`): else the next file or
    socket opened would take the number, and be printed into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        print(f"allranks {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[0] == COMPLETE:
        from allranks.cli.admin.complete_words import answer  # lazy: asked by a shell at a TAB

        return answer(words[1:])
    if words[0] in groups():
        asked = words[1:2] in (["-h"], ["--help"]) and words[0] not in COMMANDS
        if len(words) == 1 or asked:
            print(_group_help(words[0]))
            return 0
    name, rest = chosen(words)
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"there is no command `allranks {name}`", hint=_nearest(name))
    module: Any = importlib.import_module(command.module)
    options = parser_of(name, module).parse_args(rest)
    execute = getattr(module, command.function)
    job_names.resolve(options)
    return int(execute(options))


def _nearest(name: str) -> str:
    import difflib  # lazy: only when a command was misspelt

    group, _, verb = name.partition(" ")
    if verb and group in groups():
        # Another group's command of the same verb is never what was meant.
        verbs = [each.removeprefix(f"{group} ") for each, _ in in_group(group) if " " in each]
        near = [f"{group} {each}" for each in difflib.get_close_matches(verb, verbs, 1)]
        overview = f"allranks {group} --help"
    else:
        near = difflib.get_close_matches(group, [*COMMANDS, *groups()], 1, 0.5)
        overview = "allranks --help"
    return f"did you mean `allranks {near[0]}`?" if near else f"`{overview}` lists the commands"


def _overview() -> str:
    lines = ["usage: allranks COMMAND …", "", "Run distributed training scripts, unmodified.", ""]
    grouped = groups()
    lines += _lines([each for each in COMMANDS.items() if each[0].split()[0] not in grouped])
    for group in grouped:
        lines += ["", *_lines(in_group(group))]
    lines += ["", "`allranks COMMAND --help` tells more. `allranks --version` shows the version."]
    return "\n".join(lines)


def _group_help(group: str) -> str:
    return "\n".join([f"usage: allranks {group} COMMAND …", "", *_lines(in_group(group))])


def _lines(commands: list[tuple[str, Command]]) -> list[str]:
    return [f"  {name:<21}{command.help}" for name, command in commands]


if __name__ == "__main__":
    sys.exit(main())
