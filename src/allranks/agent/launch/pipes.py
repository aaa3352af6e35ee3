"""Notice which program of a command's pipe failed, as in `python train.py | tee log`: the pipe may
hide it, and what `tee` passes on may follow its traceback.

Bash reads the file that BASH_ENV names before its command, and there learns to write down the exit
codes of the last pipe. Of scripts only one that is the whole command inherits it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from allranks import folder_trees

_PIPE = re.compile(r"(?<!\|)\|(?!\|)")
# A shell whose command is another shell, or a script, becomes that shell.
_SHELL = re.compile(r"(?:/bin/)?bash (?:-o \w+ |-\w+ )*?-\w*c (?:'[^']*'|\"[^\"]*\")+")
_SCRIPT = re.compile(r"(?:(?:/bin/)?bash (?:-o \w+ |-\w+ )*)?[\w./-]+\.sh(?: [\w./=:-]+)*")
_LEARN = """\
if [[ $BASH_EXECUTION_STRING != {outer} ]]; then
unset BASH_ENV
allranks_pipe={file}
trap 'allranks_ended=("$?" "${{PIPESTATUS[@]}}");
echo "${{allranks_ended[@]}}" >"$allranks_pipe"' EXIT
fi
"""
# A program that still writes while its reader, such as `head`, has ended gets SIGPIPE.
_HARMLESS = (0, 141)


def with_exit_codes(log: Path, command: str, env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment in which the rank that writes ``log`` records how its last pipe ended."""
    is_script = _SCRIPT.fullmatch(command.strip())
    if "BASH_ENV" in env or not (is_script or _PIPE.search(command)):
        return env
    learn = log.with_suffix(".pipe.sh")
    outer = shlex.quote(command) if is_script or _SHELL.fullmatch(command.strip()) else "''"
    learn.write_text(_LEARN.format(file=shlex.quote(str(_record(log))), outer=outer))
    # Bash expands the value as between double quotes.
    return {**env, "BASH_ENV": re.sub(r'([$`"\\])', r"\\\1", str(learn))}


def hidden_code(log: Path) -> int | None:
    """The exit code, other than 0, that the last pipe of a successful rank hid, if any."""
    shell, *codes = _codes(log) or [0]
    return next((code for code in codes[:-1] if not shell and code not in _HARMLESS), None)


def failed_behind_pipe(log: Path, code: int) -> bool:
    """Whether a rank ended with ``code`` since a program before the last of its last pipe did."""
    shell, *codes = _codes(log) or [0]
    return code == shell != 0 and codes[-1:] == [0] and code in codes[:-1]


def _codes(log: Path) -> list[int]:
    """The exit code of the shell, and those of its last pipe; empty if they are not known."""
    try:
        return [int(word) for word in folder_trees.read_file(_record(log)).split()]
    except (OSError, ValueError):
        return []


def _record(log: Path) -> Path:
    return log.with_suffix(".pipe")
