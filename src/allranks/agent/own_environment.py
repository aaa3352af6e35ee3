"""The virtual environment of an attempt: the shared one found or made, and a layer in front."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.agent import frameworks
from allranks.agent.environments import Shelf
from allranks.agent.layer import layer
from allranks.agent.uv import Say, Wait
from allranks.plan.activation import activated
from allranks.plan.plan import Task


class Prepared(NamedTuple):
    """The variables that ranks begin with, and which TensorFlow they will find."""

    base: dict[str, str]
    tensorflow: tuple[int, int] | None


def prepare(
    task: Task, node: int, base: Mapping[str, str], folder: Path, wait: Wait, say: Say
) -> Prepared:
    """Make the attempt's ``folder`` hold the layer; ``base`` is what the submitter had in front.

    The log of a making goes to the job's record. Raises as ``Shelf.provide``.
    """
    assert task.recipe is not None
    shelf = Shelf(Path(task.environments), _uv(task, base), {**os.environ, **base, **task.tools})
    began, log = time.time(), shelf.log(task.recipe)
    try:
        made = shelf.provide(task.recipe, wait, say)
    finally:
        with contextlib.suppress(OSError):
            if log.stat().st_mtime >= began:
                kept = Path(task.record, "artifacts", "system_logs")
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(log, kept / f"environment_node_{node}.txt")
    goal = folder / "environment"
    layer(made.folder, goal)
    found = activated(base, str(goal), task.recipe.variables)
    return Prepared(found, frameworks.among(made.packages))


def _uv(task: Task, base: Mapping[str, str]) -> str:
    """The server's own where the node sees it, or the first on PATH."""
    if os.access(task.uv, os.X_OK):
        return task.uv
    return shutil.which("uv", path=base.get("PATH")) or task.uv or "uv"
