"""What a cluster's own lines (modules, a prologue) changed on a node, laid over a rank's base.

A rank's environment begins with a clean base, taken where the job was submitted; what such lines
put into the environment is meant for the ranks. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

# The shell's own, the batch system's, and ours.
_NOT_FOR_RANKS = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "ALLRANKS_", "BASH_FUNC_")
_OF_SHELLS = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV", "TMPDIR"})
# Variables that are lists of folders, joined by colons. (CUDA_PATH and the like are one folder.)
_LISTS = frozenset(
    {
        "PATH",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "PYTHONPATH",
        "MANPATH",
        "INFOPATH",
        "PKG_CONFIG_PATH",
        "CMAKE_PREFIX_PATH",
        "ACLOCAL_PATH",
        "XDG_DATA_DIRS",
    }
)


def laid_over(
    base: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """``base`` with what differs in ``after`` from ``before``: what is set, changed or unset. To a
    list of folders what was added is added, in front; only the active environment's own programs
    stay first."""
    variables = dict(base)
    for name in before.keys() | after.keys():
        value = after.get(name)
        was = before.get(name)
        if value == was or name.startswith(_NOT_FOR_RANKS) or name in _OF_SHELLS:
            continue
        if value is None:
            variables.pop(name, None)
        elif name in _LISTS:
            variables[name] = _added(name, base, was or "", value)
        else:
            variables[name] = value
    return variables


def _added(name: str, base: Mapping[str, str], was: str, value: str) -> str:
    old = was.split(":")
    kept = base.get(name, "").split(":")
    new = [folder for folder in value.split(":") if folder not in old and folder not in kept]
    active = base.get("VIRTUAL_ENV") or base.get("CONDA_PREFIX")
    first = 1 if name == "PATH" and active and kept[0] == f"{active}/bin" else 0
    return ":".join(folder for folder in (*kept[:first], *new, *kept[first:]) if folder)


def read(listed: bytes) -> dict[str, str]:
    """An environment as `env -0` lists it."""
    text = listed.decode(errors="surrogateescape")
    return dict(line.partition("=")[::2] for line in text.split("\0") if "=" in line)
