"""What `allranks doctor --job` asks of a small gang, and what the gang tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.errors import AllranksError


class Question(NamedTuple):
    """What the job is, as far as the verdicts need it. ``python`` is None when it is not seen to
    run one, ``own`` its variables; ``current``: it runs in the environment in front here."""

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
    """What came of it. ``lines`` are the probes' words, ``job`` the newest known of the gang's job,
    ``error`` why there was none or no more; ``ended`` whether it ended by itself in time."""

    lines: tuple[Mapping[str, Any], ...] = ()
    job: Mapping[str, Any] = {}
    error: AllranksError | None = None
    ended: bool = False
