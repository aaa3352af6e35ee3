"""Who gets a virtual environment, and what activating it does to variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a client imports this module and does not need it
    from allranks.core.plan import Task

_INSTALLS = re.compile(r"\bpip[\d.]*\s+install\b")
OF_ANOTHER = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME")


def installs_packages(command: str) -> bool:
    """Whether a command installs packages by itself."""
    return _INSTALLS.search(command) is not None


def is_made_for(task: Task) -> bool:
    """Whether the ranks get an environment of their own, outside of a container: that of a recipe,
    or a layer for what their command installs."""
    made = task.recipe is not None or installs_packages(task.command)
    return made and task.container is None


def kept(variables: Mapping[str, str], prefix: str) -> dict[str, str]:
    """A user's own variables, which win over ours, without what would lead past the environment:
    a PATH of theirs comes behind its programs."""
    own = {name: value for name, value in variables.items() if name not in OF_ANOTHER}
    if "PATH" in own:
        own["PATH"] = f"{prefix}/bin:{own['PATH']}"
    return own


def activated(base: Mapping[str, str], prefix: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables ``base`` as they are once the environment in ``prefix`` is active, and the one
    that was is not; ``variables`` are the environment's own."""
    rest = dict(base)
    before = [rest.pop(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    for name in [*rest]:
        if name in ("PYTHONPATH", "PYTHONHOME") or name.startswith("CONDA_"):
            del rest[name]
    gone = {f"{folder}/bin" for folder in before if folder}
    path = [folder for folder in base.get("PATH", "").split(":") if folder and folder not in gone]
    return {
        **rest,
        "VIRTUAL_ENV": prefix,
        "PATH": ":".join((f"{prefix}/bin", *path)),
        **variables,
    }
