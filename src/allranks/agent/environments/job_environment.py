"""The virtual environment of an attempt: the shared one found or made, and a layer in front."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.agent.environments import installed_frameworks
from allranks.agent.environments.layer import layer
from allranks.agent.environments.uv import Say, Wait, program
from allranks.agent.environments.virtual_environments import EnvironmentCache
from allranks.plan.environments.activation import activated, kept
from allranks.plan.plan import Task


class Prepared(NamedTuple):
    """The variables that ranks begin with, the user's own, and which TensorFlow they will find."""

    base: dict[str, str]
    variables: dict[str, str]
    tensorflow: tuple[int, int] | None


def prepare(task: Task, node: int, folder: Path, wait: Wait, say: Say) -> Prepared:
    """Make the attempt's ``folder`` hold the layer, in front of what the submitter had there.

    The log of a making goes to the job's record. Raises as ``EnvironmentCache.provide``.
    """
    assert task.recipe is not None
    base, variables = task.base, task.variables
    shelf = EnvironmentCache(
        Path(task.environments), program(task.uv, base.get("PATH")), {**base, **task.tools}
    )
    with logged(task, node, shelf.log(task.recipe)):
        made = shelf.provide(task.recipe, wait, say)
    goal = folder / "environment"
    layer(made.folder, goal)
    found = activated(_outside(base), str(goal), task.recipe.variables)
    own = kept(variables, str(goal))
    return Prepared(found, own, installed_frameworks.among(made.packages))


@contextlib.contextmanager
def logged(task: Task, node: int, log: Path) -> Iterator[None]:
    """Copy what was written to ``log`` meanwhile to the job's record."""
    began = time.time()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if log.stat().st_mtime >= began:
                logs = Path(task.record, "artifacts", "system_logs")
                logs.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(log, logs / f"environment_node_{node}.txt")


def _outside(base: Mapping[str, str]) -> dict[str, str]:
    """Without programs of virtual environments on PATH, whether they were activated or not."""
    path = [each for each in base.get("PATH", "").split(":") if each]
    plain = [each for each in path if not Path(each, "..", "pyvenv.cfg").exists()]
    return {**base, "PATH": ":".join(plain)}
