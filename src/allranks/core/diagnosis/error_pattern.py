"""The type of rows in the tables of exception patterns, one table per subject:
``system_errors``, ``code_errors``, ``gpu_errors``, ``nccl_and_network_errors``."""

from __future__ import annotations

from typing import NamedTuple

from allranks.core.diagnosis.causes import Cause


class ErrorPattern(NamedTuple):
    """``text`` is matched against the beginning of `ExceptionName: message`. If given, ``source``
    is matched against the line of code that raised it, and ``file`` searched in its file name.

    ``fix`` replaces the cause's own; {0}, {1} … stand for groups of the match.
    """

    cause: Cause
    text: str
    fix: str = ""
    source: str = ""
    file: str = ""
