"""Find the command, run it, print its error.

A command's module is imported, and its parser built, only when the command runs: `allranks --help`
and `allranks run` must start fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from allranks.cli import job_names
from allranks.cli.commands import COMMANDS, Command, groups, in_group, split_command
from allranks.cli.output import colours
from allranks.cli.output.errors import print_error
from allranks.cli.parser import parser_of
from allranks.errors import AllranksError, UsageError
from allranks.version import __version__

# Characters of a message that nobody expected.
_LONGEST = 300


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; prints errors instead of raising them."""
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    # What follows `--` is the user's command.
    options = words[: words.index("--")] if "--" in words else words
    as_json = "--json" in options
    if "--no-color" in options:
        colours.switch_off()
        words = words[1:] if words[0] == "--no-color" else words
    try:
        code = run_words(words)
        sys.stdout.flush()
        return code
    except AllranksError as error:
        print_error(error, as_json)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python would fail again at its final flush.
        _discard_stdout()
        return 141
    except OSError as error:
        _discard_stdout()
        reason = (error.strerror or str(error)).lower()
        where = str(error.filename) if error.filename else None
        hint = "check that the disk has room and that the current folder still exists"
        print_error(AllranksError(f"system error: {reason}", where=where, hint=hint))
        return 1
    except Exception as error:  # most often an answer of a server that is none of ours
        if sys.flags.dev_mode:
            raise
        print_error(_unexpected(error), as_json)
        return 1


def _unexpected(error: Exception) -> AllranksError:
    import traceback  # lazy: only for what nobody expected

    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {str(error)[:_LONGEST]}".removesuffix(": ")
    hint = (
        "check that it is an allranks server of this version: `allranks server status`; "
        "`PYTHONDEVMODE=1 allranks …` shows the traceback for a report"
    )
    where = f"{frame.filename}:{frame.lineno}"
    return AllranksError(f"unexpected data, or a bug: {what}", where=where, hint=hint)


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open 0, 1 and 2 on /dev/null where the caller closed them (`>&-`): otherwise the next file
    or socket gets the number, and is printed into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def run_words(words: list[str]) -> int:
    """Run one command. Returns its exit code; raises its errors."""
    if "_ARGCOMPLETE" in os.environ:
        from allranks.cli.admin.complete_words import answer  # lazy: for shells, at a TAB

        answer()
    if words in (["--version"], ["version"]):
        print(f"allranks {__version__}")
        return 0
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[0] in groups():
        wants_help = words[1:2] in (["-h"], ["--help"]) and words[0] not in COMMANDS
        is_command = words[0] in COMMANDS and COMMANDS[words[0]].alone
        if (len(words) == 1 and not is_command) or wants_help:
            print(_group_help(words[0]))
            return 0
    name, rest = split_command(words)
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"no command `allranks {name}`", hint=_nearest(name))
    run = command.load()
    options = parser_of(name).parse_args(rest)
    for note in job_names.resolve(options):
        if not options.quiet:
            from allranks.cli.output import show  # lazy: few names are short

            show.talk(f"note: {note}")
    return int(run(options))


# What other programs call commands.
_MEANT = {
    "describe": "job show",
    "get": "job show",
    "kill": "job cancel",
    "log": "job logs",
    "ls": "job list",
    "ps": "job list",
    "rm": "job delete",
    "start": "run",
    "status": "job show",
    "stop": "job cancel",
    "submit": "run",
    "tail": "job logs",
}


def _nearest(name: str) -> str:
    import difflib  # lazy: only for a misspelt command

    group, _, verb = name.partition(" ")
    if verb and group in groups():
        # Only the group's own verbs: the group was spelt right.
        verbs = [each.removeprefix(f"{group} ") for each, _ in in_group(group) if " " in each]
        meant = _MEANT.get(verb, "").replace("job ", f"{group} ")
        near = [meant] if meant in COMMANDS else []
        close = difflib.get_close_matches(verb, verbs, 1)
        near = near or [f"{group} {each}" for each in close]
        overview = f"allranks {group} --help"
    else:
        meant = _MEANT.get(group, f"job {group}")
        near = [meant] if meant in COMMANDS else []
        near = near or difflib.get_close_matches(group, [*COMMANDS, *groups()], 1, 0.65)
        overview = "allranks --help"
    return f"did you mean `allranks {near[0]}`?" if near else f"`{overview}` lists the commands"


def _overview() -> str:
    lines = ["usage: allranks COMMAND …", "", "Run distributed training scripts, unmodified.", ""]
    lines += _lines([item for item in COMMANDS.items() if item[0].split()[0] not in groups()])
    for group in groups():
        lines += ["", *_lines(in_group(group))]
    lines += [
        "",
        "`allranks COMMAND --help` shows its options. `allranks --version` prints the version.",
    ]
    return "\n".join(lines)


def _group_help(group: str) -> str:
    return "\n".join([f"usage: allranks {group} COMMAND …", "", *_lines(in_group(group))])


def _lines(commands: list[tuple[str, Command]]) -> list[str]:
    return [f"  {f'{name} ':<21}{command.help}" for name, command in commands]


if __name__ == "__main__":
    sys.exit(main())
