"""Launches that keep nodes for the children of a parent: when one starts, when one ends. Pure.

A child waits until a launch is free, so there are at most as many as children run at once, and on a
full cluster those that run serve all children. Children that ask the cluster for something else
have launches of their own. See docs/design/sessions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple


class Launch(NamedTuple):
    """``runs``: its nodes are there; ``busy``: a child has it; ``ends``: it takes no other one;
    ``idle``: no child has had it for as long as nodes may wait."""

    name: str
    runs: bool = False
    busy: bool = False
    ends: bool = False
    idle: bool = False


class Step(NamedTuple):
    """``start`` a launch, or ``end`` one that nobody needs."""

    kind: Literal["start", "end"]
    name: str = ""


def next_step(launches: Sequence[Launch], waiting: int, to_come: int) -> Step | None:
    """The next step, when ``waiting`` children have no launch, and at most ``to_come`` follow. Of
    those that nobody needs one that still waits for its nodes ends first."""
    spare = [launch for launch in launches if not launch.busy and not launch.ends]
    if len(spare) < waiting:
        return Step("start")
    if len(spare) > waiting + to_come:
        return Step("end", min(spare, key=lambda launch: launch.runs).name)
    idle = [] if waiting else [launch.name for launch in spare if launch.idle]
    return Step("end", idle[0]) if idle else None
