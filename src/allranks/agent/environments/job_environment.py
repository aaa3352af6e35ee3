"""The virtual environment of an attempt: a shared one from the cache or the current Python, and a
layer in front."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.agent.environments import current_python, installed_frameworks
from allranks.agent.environments.layer import layer
from allranks.agent.environments.layer_of_current import layer_of_current
from allranks.agent.environments.uv import Say, Wait, program
from allranks.agent.environments.virtual_environments import EnvironmentCache
from allranks.core.environments.activation import activated, kept
from allranks.core.plan import Recipe, Task
from allranks.folder_trees import replace_file

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


class Prepared(NamedTuple):
    """The ranks' base variables, the user's variables, the version of TensorFlow, if any, and the
    number of packages of an environment that was made for the job."""

    base: dict[str, str]
    variables: dict[str, str]
    tensorflow: tuple[int, int] | None
    packages: int | None = None


def prepare(task: Task, node: int, folder: Path, wait: Wait, say: Say) -> Prepared:
    """Provide the environment, with a layer in the attempt's ``folder``, and activate it. The build
    log goes to the job's record. Raises as ``EnvironmentCache.provide``."""
    base, variables, venv = task.base, task.variables, folder / "environment"
    if task.recipe is None:
        layer_of_current(base, venv)
        version = installed_frameworks.tensorflow(base)
        # Packages that variables lead to stay visible: only the layer is put in front.
        path = f"{venv}/bin:{base.get('PATH', '')}"
        return Prepared(
            {**base, "VIRTUAL_ENV": str(venv), "PATH": path}, kept(variables, str(venv)), version
        )
    environments = EnvironmentCache(
        Path(task.environments), program(task.uv, base.get("PATH")), {**base, **task.tools}
    )
    with copy_log(task, node, environments.log(task.recipe)), current_python.named(task.current):
        environment = environments.provide(task.recipe, wait, say)
    for name in environment.left_out:
        say(f"has no {name}: the package index has no build of it for this PyTorch")
    if sentence := lacking(task.recipe, environment.python):
        say(sentence)
    layer(environment.folder, venv)
    version = installed_frameworks.tensorflow_in(environment.packages)
    own = _variables(task.recipe, version)
    return Prepared(
        activated(_without_virtual_environments(base), str(venv), own),
        kept(variables, str(venv)),
        version,
        len(environment.packages),
    )


def lacking(recipe: Recipe, python: str) -> str:
    """Which Python of a model's serves for which, if it is another."""
    if not recipe.nearest_python or not recipe.python[:1].isdigit():
        return ""
    is_other = python.split(".")[:2] != recipe.python.split(".")[:2]
    return f"uses Python {python}: Python {recipe.python} is not on this node" if is_other else ""


def _variables(recipe: Recipe, tensorflow: tuple[int, int] | None) -> Mapping[str, str]:
    """The variables of an environment. A built-in one asks for Keras 2 by a variable. Where that is
    TensorFlow's own, the variable would give a second one, whose models refuse the layers of
    `keras`."""
    if recipe.optional and tensorflow is not None and tensorflow < (2, 16):
        return {name: recipe.variables[name] for name in recipe.variables if name != _LEGACY_KERAS}
    return recipe.variables


@contextlib.contextmanager
def copy_log(task: Task, node: int, log: Path) -> Iterator[None]:
    """Copy ``log`` to the job's record if the block has written to it."""
    began = time.time()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if log.stat().st_mtime >= began:
                logs = Path(task.record, "artifacts", "system_logs")
                target = logs / f"environment_node_{node}.txt"
                with log.open("rb") as source, replace_file(target, task.record) as copy:
                    shutil.copyfileobj(source, copy)


def _without_virtual_environments(base: Mapping[str, str]) -> dict[str, str]:
    """Remove the folders of virtual environments from PATH."""
    folders = base.get("PATH", "").split(":")
    outside = [path for path in folders if path and not Path(path, "..", "pyvenv.cfg").exists()]
    return {**base, "PATH": ":".join(outside)}
