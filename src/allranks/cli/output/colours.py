"""Colours: where they are used, and what each one means.

NO_COLOR and `--no-color` win over CLICOLOR_FORCE, which colours pipes as well. Otherwise a terminal
is coloured, unless TERM is `dumb`.
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
# The words that sentences on stderr begin with.
_WORDS: Mapping[str, str] = {
    "error": f"{BOLD};{RED}",
    "hint": f"{BOLD};{CYAN}",
    "note": DIM,
}
_BEGINNING = re.compile(r"(error|hint|note):")
_COMMAND = re.compile(r"`[^`]+`")

_off = False


def switch_off() -> None:
    """For this process: somebody gave `--no-color`."""
    global _off
    _off = True


def coloured(stream: Any) -> bool:
    """Whether what is written to the stream has colours."""
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
    """A line for people: the word it begins with coloured, commands in it bold."""
    found = _BEGINNING.match(text)
    begun = paint(found[0], _WORDS[found[1]]) if found else ""
    rest = text[found.end() :] if found else text
    if found and found[1] == "note":
        return begun + rest
    return begun + _COMMAND.sub(lambda command: paint(command[0], BOLD), rest)
