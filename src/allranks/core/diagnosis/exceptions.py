"""The cause of an exception that ended a program. Patterns are specific: UNKNOWN beats a guess."""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.code_errors import CODE
from allranks.core.diagnosis.error_pattern import ErrorPattern
from allranks.core.diagnosis.gpu_errors import GPU_MEMORY, GPUS
from allranks.core.diagnosis.nccl_and_network_errors import NETWORK
from allranks.core.diagnosis.system_errors import GENERAL, SYSTEM
from allranks.core.diagnosis.tracebacks import Frame, Raised


class _Compiled(NamedTuple):
    pattern: ErrorPattern
    text: re.Pattern[str]
    source: re.Pattern[str]
    file: re.Pattern[str]


# The first match counts: narrower patterns come before general ones.
_COMPILED = tuple(
    _Compiled(each, *(re.compile(p, re.MULTILINE) for p in (each.text, each.source, each.file)))
    for each in (*GPU_MEMORY, *SYSTEM, *CODE, *GPUS, *NETWORK, *GENERAL)
)


def match_exception(raised: Raised) -> tuple[Cause, str]:
    """The cause, and the fix for this very exception; empty if the cause's own fix applies."""
    last = raised.frames[-1] if raised.frames else Frame("", 0, "", "")
    message = raised.printed[:4000]
    for pattern, text, source, file in _COMPILED:
        match = text.match(message)
        if match is None or (pattern.source and not source.match(last.source)):
            continue
        if pattern.file and not _failed_to_start(file, raised):
            continue
        return pattern.cause, filled(pattern.fix, match)
    return Cause.SCRIPT_EXCEPTION, ""


def _failed_to_start(file: re.Pattern[str], raised: Raised) -> bool:
    """Whether a program could not be started; with a ``cwd``, the folder may be what is missing."""
    last = raised.frames[-1].file if raised.frames else ""
    return bool(file.search(last)) and not any("cwd" in frame.source for frame in raised.frames)


def filled(fix: str, match: re.Match[str]) -> str:
    """``fix`` with {0}, {1} … replaced by the groups of the match."""
    groups = match.groups(default="")
    return fix.format(*groups) if groups else fix
