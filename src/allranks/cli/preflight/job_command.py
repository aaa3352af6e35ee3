"""What bash says of a job's command before it runs: can it be read, and what is not there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping

from allranks.cli.preflight import job_script
from allranks.cli.preflight.findings import BAD, NOTE, Finding

SHELL = "/bin/bash"
# Prints those of its words that are no program, function, keyword or builtin.
_MISSING = 'for name; do type -t -- "$name" >/dev/null || printf "%s\\n" "$name"; done'
# Bash reads a command, or looks through PATH, at once; a dead network disk is not waited for.
_TIMEOUT = 2.0


def look(command: str, base: Mapping[str, str], current: bool = True) -> Iterator[Finding]:
    """Findings on ``command``; ``base`` is this machine's environment, in which the ranks run too
    if it is the job's ``current`` one."""
    try:
        read = _bash(["-n", "-c", job_script.as_shell(command)], base)
        if read.returncode:
            said = read.stderr.strip().splitlines()[0] if read.stderr.strip() else "?"
            said = re.sub(r"^.*?-c: (line \d+: )?", "", said)
            yield Finding("command", BAD, f"bash cannot read it: {said}", "mind the quotes")
            return
        missing = _bash(["-c", _MISSING, "_", *job_script.programs(command)], base).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    for name in missing.splitlines():
        said = f"`{name}` is not on the PATH of the environment in front here"
        hint = "install it there, or activate the environment that has it"
        yield Finding("command", BAD if current else NOTE, said, hint)


def _bash(words: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHELL, *words],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
