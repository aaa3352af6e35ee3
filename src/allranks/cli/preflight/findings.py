"""Findings of `allranks doctor`: ok, note or blocking, each with a fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allranks.cli.output import show

OK, NOTE, BAD = "ok", "note", "bad"
_MARKS = {OK: "✓", NOTE: "·", BAD: "✗"}

# The line of the short report for each finding; others belong to the job.
_GROUPS = {
    "setup": ("allranks", "home", "server"),
    "machine": (
        "python",
        "bash",
        "CPUs",
        "GPUs",
        "clocks",
        "shared memory",
        "file limit",
        "locked memory",
    ),
    "network": (
        "network",
        "InfiniBand",
        "variable",
        "ports",
        "meeting",
        "speed",
        "all-reduce",
    ),
    "nodes": ("gang",),
}
_GROUP_OF = {what: group for group, each in _GROUPS.items() for what in each}


class Finding(NamedTuple):
    """One checked item; ``node`` if it concerns one node."""

    what: str
    state: str
    found: str
    hint: str = ""
    node: int | None = None

    @property
    def needs_a_look(self) -> bool:
        """Whether it needs attention."""
        return self.state == BAD or bool(self.hint)


def present(findings: Sequence[Finding], *, json: bool, verbose: bool = False) -> int:
    """Print the findings; returns exit code 1 if one is blocking.

    Each group gets one line for what is ok; the rest is printed in full.
    """
    if json:
        show.as_json([finding._asdict() for finding in findings])
    else:
        for line in _whole(findings) if verbose else _short(findings):
            show.line(line)
    return 1 if any(finding.state == BAD for finding in findings) else 0


def _whole(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{_MARKS[finding.state]} {finding.what:<14} {finding.found}"
        if finding.hint:
            yield f"  {'':<14} hint: {finding.hint}"


def _short(findings: Sequence[Finding]) -> Iterator[str]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_GROUP_OF.get(finding.what, "job"), []).append(finding)
    for group, members in groups.items():
        fine = [finding for finding in members if not finding.needs_a_look]
        if fine:
            yield f"{_MARKS[OK]} {group:<14} {_named(fine)}"
        yield from _whole([finding for finding in members if finding.needs_a_look])


def _named(findings: Sequence[Finding]) -> str:
    """Their names with counts and details."""
    named: dict[str, list[Finding]] = {}
    for finding in findings:
        named.setdefault(finding.what, []).append(finding)
    return ", ".join(
        what
        + (f" ×{len(several)}" if len(several) > 1 else "")
        + "".join(f" ({note.found})" for note in several if note.state == NOTE)
        for what, several in named.items()
    )
