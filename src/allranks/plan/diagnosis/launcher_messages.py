"""What programs, and what starts them, print last when they fail. Pure data: a text counts only as
the last word of a program that ended with such a code.

Groups of a match stand for {0}, {1} … of a fix of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.plan.diagnosis.causes import Cause


class Last(NamedTuple):
    """A line that a program, or what started it, prints last. ``codes``: the exit codes it goes
    with, any where there are none."""

    cause: Cause
    line: re.Pattern[str]
    codes: tuple[int, ...] = ()
    fix: str = ""


_SHELL = r"(?:(?:/bin/)?(?:ba|da)?sh: \d+|\S+: line \d+): "
# What the usual tools say that are seldom started for nothing but to be tried, and redirections;
# but for what is asked whether it is there.
_TOOL = (
    r"(?:(?:cat|cp|dd|head|mkdir|mv|tail|tee|touch)|(?:/bin/)?(?:ba|da)?sh: (?:line )?\d+|"
    r"\S+\.(?:ba)?sh: line \d+): (?!ulimit: |'?/(?:proc|sys|dev)/)"
)
_NOT_SENT = "`{0}` is not in the job's code: --code names the folder that is sent along"
# The first that fits says it: the narrower ones come first.
LAST = (
    Last(
        Cause.NOT_EXECUTABLE,
        re.compile(r".*: (\S+): bad interpreter: No such file"),
        (126, 127),
        "its first line names the interpreter `{0}`, which is not there: mend that line, or start "
        "it by its interpreter",
    ),
    Last(
        Cause.NOT_EXECUTABLE,
        re.compile(_SHELL + r"(.+): cannot execute: required file not found"),
        (126, 127),
        "the interpreter that the first line of `{0}` names is not there, or the file has Windows "
        "line ends (`sed -i 's/\\r$//'`)",
    ),
    Last(
        Cause.NOT_EXECUTABLE,
        re.compile(
            _SHELL + r"(.+): (?:Permission denied|cannot execute|Is a directory|Exec format)"
        ),
        (126,),
    ),
    Last(
        Cause.NOT_EXECUTABLE,
        re.compile(r"/usr/bin/env: .*(?:No such file or directory)"),
        (127,),
        "the interpreter that its first line names is not on the PATH of the job's environment",
    ),
    Last(
        Cause.LIBRARY_MISSING,
        re.compile(r".*error while loading shared libraries: ([^:]+): cannot open shared"),
        (127,),
        "`{0}` is not found on the node: install what it belongs to, load its module, or put its "
        "folder on LD_LIBRARY_PATH",
    ),
    Last(
        Cause.LIBRARY_MISSING,
        re.compile(r".*: version `(\w+_[\d.]+)' not found \(required by"),
        (1, 127),
        "the node has no {0}: what needs it was built on a newer system; install a build for this "
        "one",
    ),
    Last(
        Cause.COMMAND_NOT_FOUND,
        re.compile(_SHELL + r"(.+): (?:command not found|No such file or directory|not found)$"),
        (127,),
        "`{0}` is not on the PATH of the job's environment, nor in its code: install it there, or "
        "give its whole path",
    ),
    Last(
        Cause.FILE_MISSING,
        re.compile(r"(?:\S*/)?bash: (?!line \d|warning: |[/~])(\S.*): No such file or directory$"),
        (127,),
        _NOT_SENT,
    ),
    Last(
        Cause.FILE_MISSING,
        re.compile(r"(?:\S*/)?bash: [/~].*: No such file or directory$"),
        (127,),
    ),
    Last(
        Cause.FILE_MISSING,
        re.compile(
            r"(?:\S*/)?(?:da)?sh: 0: (?:cannot|[Cc]an't) open ([^/:][^:]*)(?:: No such.*)?$"
        ),
        (2, 127),
        _NOT_SENT,
    ),
    Last(
        Cause.FILE_MISSING,
        re.compile(r".*: can't open file '([^']+)': \[Errno 2\]"),
        (2,),
        _NOT_SENT,
    ),
    Last(
        Cause.MODULE_MISSING,
        re.compile(r"\S*python[\d.]*: No module named ([\w.]+)"),
        (1,),
        "`{0}` is not installed in the job's environment: install it there, or name it among what "
        "the environment asks for (-e FILE)",
    ),
    Last(
        Cause.BAD_ARGUMENT,
        re.compile(
            r"(?:\S*python\S* -m )?[\w./-]+: error: (?:unrecognized arguments|"
            r"the following arguments are required|argument .+: |ambiguous option|"
            r"one of the arguments|no such option)"
        ),
        (2,),
    ),
    Last(
        Cause.BAD_ARGUMENT,
        re.compile(
            r"Error: (?:No such option|Missing (?:option|argument)|"
            r"Invalid value for|Got unexpected)"
        ),
        (2,),
    ),
    Last(
        Cause.WRONG_PYTHON,
        re.compile(r"ERROR: Package '[^']+' requires a different Python: (\S+) not in '([^']+)'"),
        (1,),
        "it ran on Python {0} and asks for {1}: name such a version in the environment (-e FILE)",
    ),
    Last(
        Cause.DISK_FULL,
        re.compile(
            r"\S+: (?:line \d+: )?.*(?:write error|error writing .*|cannot .*): No space left"
        ),
    ),
    Last(Cause.FILE_MISSING, re.compile(_TOOL + r".*: No such file or directory$"), (1, 2)),
    Last(Cause.PERMISSION_DENIED, re.compile(_TOOL + r".*: Permission denied$"), (1, 2)),
    Last(Cause.READ_ONLY_DISK, re.compile(_TOOL + r".*: Read-only file system$"), (1, 2)),
)
