"""What an agent concludes from a rank's exit and last lines; `explain` does more. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.statuses import Reason

_PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)

# Terminal colours.
COLOURS = re.compile(r"\x1b\[[\d;]*m")
# A line of a program that tells of a failure. Compiled when a rank has failed: agents import this.
_ERROR = (
    r"(?i)error|exception|fail|fatal|abort|panic|usage:|cannot|can't|could ?n[o']t|unable|"
    r"not found|no such|not permitted|denied|refused|invalid|unknown|missing|unrecognized|killed|"
    r"core dumped"
)
_AT = re.compile(r'File "([^"]+)", line (\d+)')


def error_line(tail: Sequence[str], code: int, behind_pipe: bool = False) -> str:
    """The most useful line about a rank's failure: that of the exception that ended it, otherwise
    the last. ``behind_pipe``: as in api.events.RankEndedData."""
    tail = [COLOURS.sub("", line) for line in tail]
    return _exception_line(tail, code, behind_pipe) or _last_line(tail)


def last_words(tail: Sequence[str], code: int, behind_pipe: bool = False) -> str:
    """The error line as the end of a sentence, which says so if the line may be no error."""
    tail = [COLOURS.sub("", line) for line in tail]
    if line := _exception_line(tail, code, behind_pipe):
        return f": {line}"
    if not (line := _last_line(tail)):
        return ""
    return f": {line}" if re.search(_ERROR, line) else f"; its last line: {line}"


def _last_line(tail: Sequence[str]) -> str:
    lines = [line for line in tail if re.search(r"\w", line)]
    if [line.partition(":")[0] for line in lines[-2:]] == ["error", "hint"]:
        return lines[-2]  # as allranks' own programs end
    return lines[-1] if lines else ""


def _exception_line(tail: Sequence[str], code: int, behind_pipe: bool) -> str:
    """The line of the exception that ended Python; empty if none did."""
    from allranks.core.diagnosis import tracebacks  # lazy: its patterns take long to compile

    last = tracebacks.last_of(tail)
    # With a code that is not Python's own, nothing may follow what ended it.
    if last is None or not (
        (behind_pipe and tracebacks.ends_python(last, code))
        or tracebacks.is_the_end(tail, last, strict=code != 1)
    ):
        return ""
    line = tracebacks.undrawn(tail[last.at])
    # The line of a syntax error does not name its place.
    at = _AT.findall("\n".join(tail[: last.at])) if "SyntaxError" in line else []
    return "{}:{}: ".format(*at[-1]) + line if at else line


def port_taken(tail: Sequence[str], ports: Sequence[int]) -> int | None:
    """The first of ``ports`` that a rank could not bind because another process listens on it."""
    in_use = ports_in_use(tail)
    return next((port for port in ports if port in in_use), None)


def ports_in_use(tail: Sequence[str]) -> set[int]:
    """The numbers that may be ports beside messages that a port is in use."""
    lines = "\n".join(COLOURS.sub("", line) for line in tail if _PORT_TAKEN.search(line))
    return {int(number) for number in re.findall(r"(?<!\d)\d{2,5}(?!\d)", lines)}


def reason(signal: str | None, facts: Mapping[str, Any]) -> Reason:
    """Why a rank failed. A SIGKILL counts as OUT_OF_MEMORY if the kernel's out-of-memory killer was
    active on the node (``oom_kills`` of the facts)."""
    if signal is None:
        return Reason.RANK_EXITED
    oom = signal == "SIGKILL" and facts.get("oom_kills")
    return Reason.OUT_OF_MEMORY if oom else Reason.RANK_KILLED
