"""Whether attempts that end by a time limit get anywhere. Pure.

Compared is all that a job has left so far with the same after the last attempt that ended like
this: what a preempted attempt in between has reached counts, too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

# So many attempts in a row without progress end a job.
IN_A_ROW = 3
# With more files, new ones are not looked for: the record has a number for each.
MOST_FILES = 5000


class Progress(StrEnum):
    """What a time-limited attempt got: something new; nothing new; or nobody can tell."""

    MADE = "made"
    NONE = "none"
    UNKNOWN = "unknown"


class Left(NamedTuple):
    """What all attempts have left. ``step``: the highest of a metric; ``files``: a checksum for
    each path that ever was there; ``contents``: one for what is there now. ``hidden``: more may be
    where nobody looks."""

    step: int | None = None
    files: frozenset[int] = frozenset()
    contents: int = 0
    hidden: bool = False

    def pack(self) -> dict[str, Any]:
        return {**self._asdict(), "files": sorted(self.files)}


class Row(NamedTuple):
    """How many time-limited attempts in a row had this progress."""

    progress: Progress = Progress.MADE
    attempts: int = 0

    def after(self, progress: Progress) -> Row:
        return Row(progress, self.attempts + 1 if progress is self.progress else 1)

    def text(self, attempt: int) -> str:
        """A warning; empty after progress, and before there is something to say."""
        if self.progress is Progress.UNKNOWN and self.attempts >= IN_A_ROW:
            return (
                f"{self.attempts} attempts in a row reached the time limit of the compute; whether "
                "they made progress cannot be seen"
            )
        if self.progress is not Progress.NONE:
            return ""
        return (
            f"attempt {attempt} reached the time limit of the compute and left no new file "
            "and no metric step beyond the best so far "
            f"({self.attempts} of {IN_A_ROW} in a row)"
        )


def progress(before: Left, now: Left) -> Progress:
    """What was gained. A file that was only written again is progress, or the same work again:
    metrics decide, and without any nobody can tell."""
    further = now.step is not None and (before.step is None or now.step > before.step)
    if further or now.files - before.files:
        return Progress.MADE
    rewritten = before.files and now.contents != before.contents and now.step is None
    return Progress.UNKNOWN if rewritten or now.hidden else Progress.NONE


def ends(row: Row, rule: str) -> bool:
    """Whether the job ends, by its ``retry.no_progress``."""
    return rule == "fail" and row.progress is Progress.NONE and row.attempts >= IN_A_ROW
