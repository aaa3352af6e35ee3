"""What the last lines of a failed rank say about why. Pure: lines in, a cause or a hint out."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)

# The first that matches is said; groups of the match stand for {0}, {1} … of the hint.
_HINTS = (
    (
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "`{0}` is not installed in the job's environment: install it there, or name it among what "
        "the environment asks for (-e FILE)",
    ),
    (
        re.compile(r"Distributed package doesn't have (MPI|NCCL) built in"),
        "this PyTorch was built without {0}: use the backend gloo, or nccl where there are GPUs",
    ),
    (
        re.compile(r"Distributed package doesn't have (\w+) built in"),
        "this PyTorch was built without {0}: use the backend gloo",
    ),
    (
        re.compile(r"LOCAL_RANK \(\d+\) != OMPI_COMM_WORLD_LOCAL_RANK"),
        "DeepSpeed takes nodes of one machine for one: under mpi give it one node with more "
        "processes there (-p), or use the distribution deepspeed",
    ),
    (
        re.compile(r"can't open file '([^']+)'"),
        "`{0}` is not in the job's code: --code names the folder that is sent along",
    ),
    (
        re.compile(r"bash: line \d+: ([^:]+): command not found"),
        "`{0}` is not on the PATH of the job's environment",
    ),
)


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


def hint(tail: Sequence[str]) -> str:
    """How to mend what the lines say, the last of them first; empty when they say nothing known."""
    for line in reversed(tail):
        for pattern, text in _HINTS:
            found = pattern.search(line)
            if found:
                return text.format(*found.groups())
    return ""
