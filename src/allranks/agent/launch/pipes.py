"""Notice a command whose pipe hides that a program in it failed, as in `python train.py | tee log`.

Bash reads the file that BASH_ENV names before its command, and there learns to write down the exit
codes of the last pipe. Scripts that the command starts do not inherit it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

_PIPE = re.compile(r"(?<!\|)\|(?!\|)")
# A shell whose command is another shell becomes that shell.
_SHELL = re.compile(r"bash -\w*c (?:'[^']*'|\"[^\"]*\")+")
_LEARN = """\
if [[ $BASH_EXECUTION_STRING != {outer} ]]; then
unset BASH_ENV
allranks_pipe={file}
trap 'allranks_ended=("$?" "${{PIPESTATUS[@]}}");
[[ ${{allranks_ended[0]}} != 0 ]] || echo "${{allranks_ended[@]:1}}" >"$allranks_pipe"' EXIT
fi
"""
# A program that still writes while its reader, such as `head`, has ended gets SIGPIPE.
_HARMLESS = (0, 141)


def with_exit_codes(log: Path, command: str, env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment in which the rank that writes ``log`` records how its last pipe ended."""
    if "BASH_ENV" in env or not _PIPE.search(command):
        return env
    learn = log.with_suffix(".pipe.sh")
    outer = "bash*" if _SHELL.fullmatch(command.strip()) else "''"
    learn.write_text(_LEARN.format(file=shlex.quote(str(_record(log))), outer=outer))
    # Bash expands the value as between double quotes.
    return {**env, "BASH_ENV": re.sub(r'([$`"\\])', r"\\\1", str(learn))}


def hidden_code(log: Path) -> int | None:
    """The exit code, other than 0, that the last pipe of a successful rank hid, if any."""
    try:
        codes = [int(word) for word in _record(log).read_text().split()]
    except (OSError, ValueError):
        return None
    return next((code for code in codes[:-1] if code not in _HARMLESS), None)


def _record(log: Path) -> Path:
    return log.with_suffix(".pipe")
