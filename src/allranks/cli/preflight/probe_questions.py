"""The questions of `allranks doctor --job` to its probe job, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.errors import AllranksError


class Question(NamedTuple):
    """The job's properties for the verdicts. ``python`` is None if none is recognized, ``own`` are
    its variables; ``current``: it uses the current environment."""

    nodes: int
    procs: int
    gpus: int
    kind: str
    modules: Mapping[str, Mapping[str, Any]]
    paths: Mapping[str, str]
    programs: tuple[str, ...]
    python: str | None = None
    own: Mapping[str, str] = {}
    current: bool = True


class ProbeAnswers(NamedTuple):
    """The answers. ``lines`` are the probes' messages, ``job`` the latest record of the probe job,
    ``error`` why it failed; ``ended``: it ended by itself in time."""

    lines: tuple[Mapping[str, Any], ...] = ()
    job: Mapping[str, Any] = {}
    error: AllranksError | None = None
    ended: bool = False
