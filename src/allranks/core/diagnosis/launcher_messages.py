"""Messages that shells, linkers and command-line parsers print before they exit.

A message counts only if it is the last line of a program that exited with one of its codes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.core.diagnosis.causes import Cause


class Message(NamedTuple):
    """``codes`` are the exit codes that go with the line; empty for any. ``fix`` replaces the
    cause's own; {0}, {1} … stand for groups of the match."""

    cause: Cause
    line: re.Pattern[str]
    codes: tuple[int, ...] = ()
    fix: str = ""


_SHELL = r"(?:(?:/bin/)?(?:ba|da)?sh: \d+|\S+: line \d+): "
# Common tools and shell redirections. Probes of /proc, /sys and /dev, and `ulimit`, often fail
# harmlessly.
_TOOL = (
    r"(?:(?:cat|cp|dd|head|mkdir|mv|tail|tee|touch)|(?:/bin/)?(?:ba|da)?sh: (?:line )?\d+|"
    r"\S+\.(?:ba)?sh: line \d+): (?!ulimit: |'?/(?:proc|sys|dev)/)"
)
# Several words, not the path of one program, which may have blanks, too: the first word is a plain
# name or a script, or an option or `name=value` follows.
_LINE = r"[^\s/]+\s.+|\S+\.(?:py|sh)\s.+|\S+\s(?:.*\s)?(?:--?\w|\w+=).*"
_NOT_IN_CODE = "`{0}` is not in the job's code: set --code to the folder that contains it"
# How bash shows the carriage returns of a script with Windows line endings, and what the last of
# its messages may be.
WINDOWS_LINES = re.compile(r"(\S+): line \d+: .*\$'.*\\r'")
FROM_A_SHELL = re.compile(_SHELL)
WITHOUT_THEM = "`{0}` has Windows line endings: remove them with `sed -i 's/\\r$//' {0}` (dos2unix)"
_REMOVE_THEM = ": remove them with `sed -i 's/\\r$//' SCRIPT` (dos2unix)"
# The first match counts: narrower patterns come first.
MESSAGES = (
    Message(
        Cause.NOT_EXECUTABLE,
        re.compile(r".*: (\S+): bad interpreter: No such file"),
        (126, 127),
        "the interpreter in its first line, `{0}`, was not found: correct that line, or run it "
        "with its interpreter",
    ),
    Message(
        Cause.NOT_EXECUTABLE,
        re.compile(_SHELL + r"(.+): cannot execute: required file not found"),
        (126, 127),
        "the interpreter in the first line of `{0}` was not found, or the file has Windows line "
        "endings (remove them: `sed -i 's/\\r$//' {0}`)",
    ),
    Message(
        Cause.NOT_EXECUTABLE,
        re.compile(
            _SHELL + r"(.+): (?:Permission denied|cannot execute|Is a directory|Exec format)"
        ),
        (126,),
    ),
    Message(
        Cause.NOT_EXECUTABLE,
        re.compile(r"/usr/bin/env: .*\\r\W.*No such file or directory"),
        (127,),
        "the script has Windows line endings, also in its first line" + _REMOVE_THEM,
    ),
    Message(
        Cause.NOT_EXECUTABLE,
        re.compile(r"/usr/bin/env: .*(?:No such file or directory)"),
        (127,),
        "the interpreter in its first line is not on the PATH of the job's environment",
    ),
    Message(
        Cause.LIBRARY_MISSING,
        re.compile(r".*error while loading shared libraries: ([^:]+): cannot open shared"),
        (127,),
        "`{0}` is missing on the node: install its package, load its module, or add its folder to "
        "LD_LIBRARY_PATH",
    ),
    Message(
        Cause.LIBRARY_MISSING,
        re.compile(r".*: version `(\w+_[\d.]+)' not found \(required by"),
        (1, 127),
        "the node's system library has no {0}: the program was built on a newer system; install a "
        "build for this one",
    ),
    # What commands of the shell say of their argument, such as `cd`.
    Message(
        Cause.FILE_MISSING,
        re.compile(_SHELL + r"(?!exec: )[a-z.]+: .+: No such file or directory$"),
        (127,),
    ),
    Message(
        Cause.COMMAND_NOT_FOUND,
        re.compile(_SHELL + rf"({_LINE}): (?:command not found|No such file.*)$"),
        (127,),
        "`{0}` is one quoted word, and bash takes one word as the name of a program: leave out "
        "the quotes, or write `bash -c '…'`",
    ),
    Message(
        Cause.COMMAND_NOT_FOUND,
        re.compile(_SHELL + r"(--?\w.*): command not found$"),
        (127,),
        "`{0}` is on a line of its own, so a shell takes it for a program: end the line before it "
        "with `\\`, or in a job file with `command: >` indent all lines alike, as YAML keeps the "
        "line ends of those that are indented more",
    ),
    Message(
        Cause.COMMAND_NOT_FOUND,
        re.compile(_SHELL + r"(\S+\.ya?ml): (?:command not found|not found)$"),
        (127,),
        "`{0}` is no program; to run a job file: `allranks run -f {0}`",
    ),
    Message(
        Cause.COMMAND_NOT_FOUND,
        re.compile(_SHELL + r"(.+): (?:command not found|No such file or directory|not found)$"),
        (127,),
        "`{0}` is neither on the PATH of the job's environment nor in its code: install it, or "
        "give its full path",
    ),
    Message(
        Cause.FILE_MISSING,
        re.compile(r"(?:\S*/)?bash: (?!line \d|warning: |[/~])(\S.*): No such file or directory$"),
        (127,),
        _NOT_IN_CODE,
    ),
    Message(
        Cause.FILE_MISSING,
        re.compile(r"(?:\S*/)?bash: [/~].*: No such file or directory$"),
        (127,),
    ),
    Message(
        Cause.FILE_MISSING,
        re.compile(
            r"(?:\S*/)?(?:da)?sh: 0: (?:cannot|[Cc]an't) open ([^/:][^:]*)(?:: No such.*)?$"
        ),
        (2, 127),
        _NOT_IN_CODE,
    ),
    Message(
        Cause.FILE_MISSING,
        re.compile(r".*: can't open file '(?:[^']*/)?([^'/]+)\\r': \[Errno 2\]"),
        (2,),
        "the script that starts `{0}` has Windows line endings" + _REMOVE_THEM,
    ),
    Message(
        Cause.FILE_MISSING,
        # Without the job's own working folder.
        re.compile(
            r".*: can't open file '(?:[^']*/(?:attempt|node)-\d+/work/)?([^']+)': \[Errno 2\]"
        ),
        (2,),
        _NOT_IN_CODE,
    ),
    Message(
        Cause.MODULE_MISSING,
        re.compile(r"\S*python[\d.]*: No module named ([\w.]+)"),
        (1,),
        "`{0}` is not installed in the job's environment: add it to the environment (-e FILE), or "
        "install it there",
    ),
    Message(
        Cause.BAD_ARGUMENT,
        re.compile(
            r"(?:\S*python\S* -m )?[\w./-]+: error: (?:unrecognized arguments|"
            r"the following arguments are required|argument .+: |ambiguous option|"
            r"one of the arguments|no such option)"
        ),
        (2,),
    ),
    Message(
        Cause.BAD_ARGUMENT,
        re.compile(
            r"Error: (?:No such option|Missing (?:option|argument)|"
            r"Invalid value for|Got unexpected)"
        ),
        (2,),
    ),
    Message(
        Cause.WRONG_PYTHON,
        re.compile(r"ERROR: Package '[^']+' requires a different Python: (\S+) not in '([^']+)'"),
        (1,),
        "it ran on Python {0} but requires {1}: request that version in the environment (-e FILE)",
    ),
    Message(
        Cause.MINI_BATCH_FAILED,
        re.compile(r"\d+ \w+ failed; the limit is \d+: run\(\) returned (\d+ \w+ for \d+ \w+)"),
        (1,),
        "it returned {0}: return a result for each, or raise `error_threshold`",
    ),
    Message(
        Cause.MINI_BATCH_FAILED,
        re.compile(r"mini-batch (\d+): run\(\) called (sys\.exit|os\._exit)\((.*)\); its files: "),
        (),
        "it called {1}({2}) in mini-batch {0}: raise an exception instead, which is tried "
        "again and counts for the threshold",
    ),
    Message(
        Cause.UNKNOWN,
        re.compile(r"(\S+:\d+): os\._exit\((.*)\) is called$"),
        (),
        "{0} ends the replica by os._exit({1}): raise an exception, which answers that request",
    ),
    Message(
        Cause.DISK_FULL,
        re.compile(
            r"\S+: (?:line \d+: )?.*(?:write error|error writing .*|cannot .*): No space left"
        ),
    ),
    Message(Cause.FILE_MISSING, re.compile(_TOOL + r".*: No such file or directory$"), (1, 2)),
    Message(Cause.PERMISSION_DENIED, re.compile(_TOOL + r".*: Permission denied$"), (1, 2)),
    Message(Cause.READ_ONLY_DISK, re.compile(_TOOL + r".*: Read-only file system$"), (1, 2)),
)
