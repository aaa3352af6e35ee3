"""Colours and their meaning.

NO_COLOR and `--no-color` override CLICOLOR_FORCE, which also colours pipes. Otherwise terminals are
coloured unless TERM is `dumb`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

BOLD, DIM, RED, GREEN, YELLOW, BLUE, CYAN = "1", "2", "31", "32", "33", "34", "36"

_STATUS: Mapping[str, str] = {
    "Completed": GREEN,
    "Failed": RED,
    "Damaged": RED,
    "Running": BLUE,
    **dict.fromkeys(("NotStarted", "Queued", "Provisioning", "Preparing", "Finalizing"), YELLOW),
}
# Words at the start of messages on stderr.
_WORDS: Mapping[str, str] = {
    "error": f"{BOLD};{RED}",
    "hint": f"{BOLD};{CYAN}",
    "note": DIM,
}
_BEGINNING = re.compile(r"(error|hint|note):")
_COMMAND = re.compile(r"`[^`]+`")

_off = False


def switch_off() -> None:
    """Switch colours off for this process (`--no-color`)."""
    global _off
    _off = True


def coloured(stream: Any) -> bool:
    """Whether the stream gets colours."""
    if _off or "NO_COLOR" in os.environ:
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    return f"\033[{style}m{text}\033[0m" if style and text else text


def of_status(status: str) -> str:
    """The style of a job's status; empty when it has none."""
    return _STATUS.get(status, "")


def sentence(text: str) -> str:
    """A message with its first word coloured and commands in bold."""
    match = _BEGINNING.match(text)
    begun = paint(match[0], _WORDS[match[1]]) if match else ""
    rest = text[match.end() :] if match else text
    if match and match[1] == "note":
        return begun + rest
    return begun + _COMMAND.sub(lambda command: paint(command[0], BOLD), rest)
