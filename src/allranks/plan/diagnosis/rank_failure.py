"""What an agent makes of a rank's end and last lines; the whole story is `explain`'s. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.statuses import Reason

_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)

# What colours text on a terminal.
COLOURS = re.compile(r"\x1b\[[\d;]*m")
_AT = re.compile(r'File "([^"]+)", line (\d+)')


def telling(tail: Sequence[str], code: int) -> str:
    """The line that says most of how a rank failed: that of the exception which may have ended it,
    else the very last."""
    from allranks.plan.diagnosis import tracebacks  # lazy: its patterns take long to compile

    tail = [COLOURS.sub("", line) for line in tail]
    last = tracebacks.last_of(tail)
    # With another code than Python's own nothing follows what ended it.
    if last is None or not tracebacks.is_the_end(tail, last, strict=code != 1):
        return next((line for line in reversed(tail) if re.search(r"\w", line)), "")
    line = tracebacks.undrawn(tail[last.at])
    # Nothing else of a syntax error says where it is.
    at = _AT.findall("\n".join(tail[: last.at])) if "SyntaxError" in line else []
    return "{}:{}: ".format(*at[-1]) + line if at else line


def port_taken(tail: Sequence[str], ports: Sequence[int]) -> int | None:
    """The one of ``ports`` that a rank could not listen on because something else does."""
    said = [line for line in tail if _TAKEN.search(line)]
    for port in ports:
        if any(re.search(rf"(?<!\d){port}(?!\d)", line) for line in said):
            return port
    return None


def reason(signal: str | None, facts: Mapping[str, Any]) -> Reason:
    """Why a rank has failed, of what its end and its node's facts alone say: who is killed out of
    nowhere while the kernel kills for want of memory, is killed for that."""
    if signal is None:
        return Reason.RANK_EXITED
    starved = signal == "SIGKILL" and facts.get("oom_kills")
    return Reason.OUT_OF_MEMORY if starved else Reason.RANK_KILLED
