"""Check a job's command with bash: its syntax, and missing programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping

from allranks.cli.preflight.findings import BAD, NOTE, Finding
from allranks.core.job import command_scripts

SHELL = "/bin/bash"
# Prints the names that are not a program, function, keyword or builtin.
_MISSING = 'for name; do type -t -- "$name" >/dev/null || printf "%s\\n" "$name"; done'
# Bash answers at once; do not wait for a dead network disk.
_TIMEOUT = 2.0


def look(command: str, base: Mapping[str, str], current: bool = True) -> Iterator[Finding]:
    """Findings on ``command``; ``base`` is this machine's environment, which is also the ranks' if
    the job uses ``current``."""
    try:
        read = _bash(["-n", "-c", command_scripts.as_shell(command)], base)
        if read.returncode:
            text = read.stderr.strip().splitlines()[0] if read.stderr.strip() else "?"
            text = re.sub(r"^.*?-c: (line \d+: )?", "", text)
            yield Finding("command", BAD, f"bash cannot parse it: {text}", "check the quotes")
            return
        missing = _bash(["-c", _MISSING, "_", *command_scripts.programs(command)], base).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    for name in missing.splitlines():
        text = f"`{name}` is not on the PATH of the current environment"
        hint = "install it there, or activate the environment that has it"
        yield Finding("command", BAD if current else NOTE, text, hint)


def _bash(words: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHELL, *words],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
