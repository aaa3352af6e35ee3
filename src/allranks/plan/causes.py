"""What an agent makes of a rank's end and last lines; the whole story is `explain`'s. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.states import Reason

_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)

# What an exception that ended a program looks like: after it others may talk while they go down.
_RAISED = re.compile(r"(\[rank\d+\]:\s+)?[\w.]*(Error|Exception|Interrupt|Exit)\b(:|$)")
_AT = re.compile(r'File "([^"]+)", line (\d+)')


def telling(tail: Sequence[str]) -> str:
    """The line that says most of how a rank failed: its last exception's, else the very last."""
    for index in range(len(tail) - 1, -1, -1):
        line = tail[index]
        if not _RAISED.match(line):
            continue
        # Nothing else of a syntax error says where it is.
        at = (
            [m for each in tail[:index] if (m := _AT.search(each))] if "SyntaxError" in line else []
        )
        return f"{at[-1][1]}:{at[-1][2]}: {line}" if at else line
    return tail[-1] if tail else ""


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
