"""What is kept of the files that ranks wrote into their working folder. Pure.

Each agent decides for its own node and says so in a note (``about: work``); ``summary`` adds the
notes of all nodes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from allranks.core.amounts import counted, size_text

ABOUT = "work"
# Bytes a node keeps, unless the job says otherwise, and how many files.
LIMIT, FILES = 10 * 10**9, 100_000
# How many of the files that were not kept are named, and how long a name may be there.
_NAMED, _LONG = 5, 200
_GIB = 1 << 30


class File(NamedTuple):
    """A file by its path in the working folder."""

    path: str
    size: int


class Why(StrEnum):
    """Why files were not kept."""

    LIMIT = "limit"
    COUNT = "count"
    IGNORED = "ignored"
    TIME = "time"
    FAILED = "failed"


class LeftOut(NamedTuple):
    """Files that were not kept; ``named`` are the largest of them, ``said`` is the system's word
    for it."""

    why: Why
    files: int
    size: int
    named: tuple[File, ...] = ()
    said: str = ""


class Summary(NamedTuple):
    """What is kept of one attempt's working folders, and what is not."""

    files: int = 0
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()


def choose(files: Iterable[File], limit: int | None) -> tuple[list[File], list[File]]:
    """The files that ``limit`` bytes have room for, the smallest first, and the others."""
    kept, size = sorted(files, key=lambda file: (file.size, file.path)), 0
    for number, file in enumerate(kept):
        size += file.size
        if limit is not None and size > limit:
            return kept[:number], kept[number:]
    return kept, []


def left_out(why: Why, files: Sequence[File], reason: str = "") -> list[LeftOut]:
    """They, in brief; empty when there are none."""
    if not files:
        return []
    largest = sorted(files, key=lambda file: -file.size)[:_NAMED]
    named = tuple(File(_printable(file.path), file.size) for file in largest)
    return [LeftOut(why, len(files), sum(file.size for file in files), named, reason)]


def note(summary: Summary) -> dict[str, Any]:
    """The data of the event that tells it."""
    size = size_text(summary.size)
    message = f"kept {counted(summary.files, 'file')} ({size}) of the working folder"
    missing = sum(group.files for group in summary.left_out)
    if missing:
        message += f", left out {missing}"
    groups = [
        {**group._asdict(), "why": str(group.why), "named": [list(file) for file in group.named]}
        for group in summary.left_out
    ]
    return {"message": message, "files": summary.files, "size": summary.size, "left_out": groups}


def summary(events: Iterable[Mapping[str, Any]], attempt: int) -> Summary:
    """Of all nodes of an attempt, by the events as ``job events --json`` shows them."""
    files = size = 0
    by_why: dict[Why, LeftOut] = {}
    for event in events:
        data = event["data"]
        if event["attempt"] != attempt or data.get("about") != ABOUT:
            continue
        files, size = files + data["files"], size + data["size"]
        for row in data["left_out"]:
            group = LeftOut(**{**row, "why": Why(row["why"]), "named": _files(row["named"])})
            so_far = by_why.get(group.why, LeftOut(group.why, 0, 0))
            by_why[group.why] = LeftOut(
                group.why,
                so_far.files + group.files,
                so_far.size + group.size,
                tuple(sorted(so_far.named + group.named, key=lambda f: -f.size)[:_NAMED]),
                so_far.said or group.said,
            )
    return Summary(files, size, tuple(by_why[why] for why in Why if why in by_why))


def sentences(summary: Summary) -> list[str]:
    """For a person, of what was not kept, with what keeps it the next time."""
    return [
        f"not kept: {_many(group)} of the working folder, {group.said or _WHY[group.why]}: "
        f"{_names(group)}; {_mend(group, summary)}"
        for group in summary.left_out
    ]


_WHY: Mapping[Why, str] = {
    Why.LIMIT: "over the limit",
    Why.COUNT: f"over the limit of {FILES:,} files",
    Why.IGNORED: "ignored by .amlignore or .gitignore",
    Why.TIME: "not copied in time",
    Why.FAILED: "could not be copied",
}


def _mend(group: LeftOut, summary: Summary) -> str:
    if group.why is Why.LIMIT:
        option = f"{-(-(summary.size + group.size) // _GIB)}g"
    elif group.why in (Why.COUNT, Why.IGNORED):
        option = "all"
    else:
        return "write files to keep to ./outputs"
    return f"--keep-work {option} (keep_work: {option} in a job file) keeps them next time"


def _many(group: LeftOut) -> str:
    return f"{counted(group.files, 'file')} ({size_text(group.size)})"


def _names(group: LeftOut) -> str:
    names = ", ".join(f"{file.path} ({size_text(file.size)})" for file in group.named)
    rest = group.files - len(group.named)
    return f"{names} and {rest} more" if rest else names


def _files(named: Sequence[Sequence[Any]]) -> tuple[File, ...]:
    return tuple(File(str(path), int(size)) for path, size in named)


def _printable(path: str) -> str:
    """A name of any bytes as text that an event can hold."""
    text = path.encode(errors="surrogateescape").decode(errors="replace").replace("\0", "?")
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
