"""What is kept of the files that ranks wrote into their working folder. Pure.

Each agent decides for its own node and says so in a note (``about: work``); ``summary`` adds the
notes of all nodes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from allranks.core.amounts import counted, size_text
from allranks.core.data.working_set import may_be_checkpoint
from allranks.core.text import printable

ABOUT = "work"
# Bytes a node keeps, unless the job says otherwise, and how many files.
LIMIT, FILES = 10 * 10**9, 100_000
# The folder of an attempt's record with the list of all files that were not kept, if an event
# cannot name them all: how many it names for each cause, and how long a name may be there.
NOT_KEPT = "not-kept"
_NAMED, _LONG = 20, 200
_GIB = 1 << 30


class File(NamedTuple):
    """A file by its path in the working folder; ``modified``: seconds since 1970."""

    path: str
    size: int
    modified: float = 0.0


class Why(StrEnum):
    """Why files were not kept."""

    LIMIT = "limit"
    COUNT = "count"
    SECRET = "secret"
    CACHE = "cache"
    IGNORED = "ignored"  # in records of 0.1.0
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


class Missed(NamedTuple):
    """All files that were not kept for one reason, in the system's words if they are its."""

    why: Why
    files: Sequence[File]
    reason: str = ""


class Summary(NamedTuple):
    """What is kept of one attempt's working folders, and what is not. ``continues``: the next
    attempt and a restart find all of it, also what is not kept."""

    files: int = 0
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()
    continues: bool = False


class Choice(NamedTuple):
    """The files that are kept, and those beyond the limits on their size and number."""

    kept: list[File]
    too_large: list[File]
    too_many: list[File]


def choose(files: Iterable[File], limit: int | None) -> Choice:
    """Choose whole files of ``limit`` bytes together: the newest checkpoints first, then other
    files, the smallest first. None: all files."""
    choice, size = Choice([], [], []), 0
    for file in sorted(files, key=_rank):
        if limit is not None and size + file.size > limit:
            choice.too_large.append(file)
        elif limit is not None and len(choice.kept) >= FILES:
            choice.too_many.append(file)
        else:
            choice.kept.append(file)
            size += file.size
    return choice


def _rank(file: File) -> tuple[bool, float, str]:
    if may_be_checkpoint(file.path):
        return False, -file.modified, file.path
    return True, file.size, file.path


def left_out(missed: Iterable[Missed]) -> tuple[LeftOut, ...]:
    """They, in brief."""
    return tuple(
        LeftOut(why, len(files), sum(file.size for file in files), _largest(files), reason)
        for why, files, reason in missed
        if files
    )


def _largest(files: Iterable[File]) -> tuple[File, ...]:
    largest = sorted(files, key=lambda file: -file.size)[:_NAMED]
    return tuple(File(_printable(file.path), file.size) for file in largest)


def listing(missed: Iterable[Missed]) -> str:
    """A line for each file that was not kept, if ``left_out`` cannot name them all; else ''."""
    every = [*missed]
    if all(len(files) <= _NAMED for _, files, _ in every):
        return ""
    return "".join(
        f"{file.size:>15,}  {printable(file.path)}  ({reason or _WHY[why]})\n"
        for why, files, reason in every
        for file in files
    )


def note(summary: Summary) -> dict[str, Any]:
    """The data of the event that tells it."""
    size = size_text(summary.size)
    message = f"kept {counted(summary.files, 'file')} ({size}) of the working folder"
    missing = sum(group.files for group in summary.left_out)
    if missing:
        message += f", left out {missing}"
    groups = [
        {
            **group._asdict(),
            "why": str(group.why),
            "named": [list(file[:2]) for file in group.named],
        }
        for group in summary.left_out
    ]
    return {**summary._asdict(), "message": message, "left_out": groups}


def summary(events: Iterable[Mapping[str, Any]], attempt: int) -> Summary:
    """Of all nodes of an attempt, by the events as ``job events --json`` shows them."""
    files = size = 0
    continues = True
    by_why: dict[Why, LeftOut] = {}
    for event in events:
        data = event["data"]
        if event["attempt"] != attempt or data.get("about") != ABOUT:
            continue
        files, size = files + data["files"], size + data["size"]
        continues = continues and data.get("continues", False)
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
    return Summary(files, size, tuple(by_why[why] for why in Why if why in by_why), continues)


def sentences(summary: Summary) -> list[str]:
    """For a person, of what was not kept, with what keeps it the next time."""
    start = "not among the job's files, but a restart finds it" if summary.continues else "not kept"
    return [
        f"{start}: {_many(group)} of the working folder, {group.said or _WHY[group.why]}: "
        f"{_names(group)}; {_mend(group, summary)}"
        for group in summary.left_out
    ]


_WHY: Mapping[Why, str] = {
    Why.LIMIT: "over the limit",
    Why.COUNT: f"over the limit of {FILES:,} files",
    Why.SECRET: "named as secrets are",
    Why.CACHE: "a cache or a virtual environment",
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
    if group.why is Why.CACHE:
        return counted(group.files, "folder")
    return f"{counted(group.files, 'file')} ({size_text(group.size)})"


def _names(group: LeftOut) -> str:
    sizes = group.why is not Why.CACHE
    names = [
        f"{file.path} ({size_text(file.size)})" if sizes else file.path for file in group.named
    ]
    rest = group.files - len(group.named)
    return f"{', '.join(names)}{f' and {rest} more, listed in {NOT_KEPT}/' if rest else ''}"


def _files(named: Sequence[Sequence[Any]]) -> tuple[File, ...]:
    return tuple(File(str(path), int(size)) for path, size in named)


def _printable(path: str) -> str:
    """A name of any bytes as text that an event can hold."""
    text = path.encode(errors="surrogateescape").decode(errors="replace").replace("\0", "?")
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
