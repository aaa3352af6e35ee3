"""What is different between two jobs: the one that failed, and the last that did not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from allranks.core.amounts import counted

# More names than a person reads.
_MOST = 8


class Side(NamedTuple):
    """What a job was asked to be, and where it ran. ``files`` are those of its code by the hash of
    what is in them, as far as they may differ from the other side's; None where that cannot be
    told. ``requirements``: None where the record does not have them. The values of variables in
    ``hidden`` are nobody's to see."""

    command: str
    distribution: str
    nodes: int
    procs: int
    gpus: int
    compute: str
    code: str | None = None
    files: Mapping[str, str] | None = None
    environment: str = ""
    requirements: tuple[str, ...] | None = ()
    inputs: Mapping[str, str] = {}
    parameters: Mapping[str, str] = {}
    hosts: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    hidden: frozenset[str] = frozenset()


class Change(NamedTuple):
    """``before`` and ``after`` in words; empty where there was nothing."""

    what: str
    before: str
    after: str


def changes(before: Side, after: Side) -> list[Change]:
    """Every difference, what is likelier to matter first."""
    return [*_code(before, after), *_plain(before, after), *_hosts(before, after)]


def _code(before: Side, after: Side) -> Iterator[Change]:
    if before.code == after.code:
        return
    if before.files is None or after.files is None or before.files == after.files:
        yield Change("code", (before.code or "")[:12], (after.code or "")[:12])
        return
    names = sorted({*before.files, *after.files})
    differing = [name for name in names if before.files.get(name) != after.files.get(name)]
    for name in differing[:_MOST]:
        was = "there" if name in before.files else ""
        now = "changed" if name in before.files else "new"
        yield Change(f"code: {name}", was, now if name in after.files else "")
    if len(differing) > _MOST:
        yield Change("code", "", f"{counted(len(differing) - _MOST, 'file')} more")


def _plain(before: Side, after: Side) -> Iterator[Change]:
    for what in ("command", "environment"):
        was = getattr(before, what)
        now = getattr(after, what)
        if was != now:
            yield Change(what, was, now)
    if before.requirements is not None and after.requirements is not None:
        yield from _named("package", packages(before), packages(after))
    yield from _named("input", before.inputs, after.inputs)
    yield from _named("parameter", before.parameters, after.parameters)
    yield from _named("variable", _variables(before, after), _variables(after, before))
    for what in ("compute", "distribution", "nodes", "procs", "gpus"):
        was = str(getattr(before, what))
        now = str(getattr(after, what))
        if was != now:
            yield Change({"procs": "ranks on each node"}.get(what, what), was, now)


def packages(side: Side) -> dict[str, str]:
    """Lines of requirements by the package they begin with."""
    by_name: dict[str, str] = {}
    for line in side.requirements or ():
        name = line
        for mark in "=<>~![;@ ":
            name = name.partition(mark)[0]
        by_name[name or line] = line
    return by_name


def _variables(side: Side, other: Side) -> dict[str, str]:
    """The variables with what is to be hidden replaced; whether that differs is still told."""
    hidden = side.hidden | other.hidden

    def shown(name: str, value: str) -> str:
        if name not in hidden:
            return value
        return "a value" if other.variables.get(name) == value else "another value"

    return {name: shown(name, value) for name, value in side.variables.items()}


def _named(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted({*before, *after}):
        was = before.get(name, "")
        now = after.get(name, "")
        differs = was != now or "another value" in (was, now)
        if differs:
            yield Change(f"{what} {name}", was, now)


def _hosts(before: Side, after: Side) -> Iterator[Change]:
    new = sorted({*after.hosts} - {*before.hosts})
    gone = sorted({*before.hosts} - {*after.hosts})
    if new:
        yield Change("hosts", ", ".join(gone[:_MOST]), ", ".join(new[:_MOST]))
