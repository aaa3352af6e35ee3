"""A thin environment in front of another: what is installed into it stays in it.

Its programs are the other's, run by its own Python, which finds the packages of both. Its folders
are its own, with links to the other's files: who writes a file there takes the link away first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_NO_PIP = """#!/bin/sh
echo "error: pip is not in this job's environment" >&2
echo "hint: name it among the requirements, or where it can be had: --find-links" >&2
exit 1
"""


def layer(environment: Path, goal: Path) -> None:
    """Make ``goal`` one in front of ``environment``, which uv has made relocatable."""
    libraries = packages_of(environment).parent
    packages = goal / "lib" / libraries.name / "site-packages"
    packages.mkdir(parents=True)
    (goal / "bin").mkdir()
    _mirrored(environment, goal, {"bin", "lib", "lib64", "pyvenv.cfg"})
    _mirrored(environment / "lib", goal / "lib", {libraries.name})
    (goal / "lib64").symlink_to("lib")
    shutil.copyfile(environment / "pyvenv.cfg", goal / "pyvenv.cfg")
    # Not its path alone: what its own .pth files add is to be found, too. The path in bytes: such a
    # file is read in whatever encoding the rank's locale has.
    behind = os.fsencode(libraries / "site-packages")
    line = f"import os, site; site.addsitedir(os.fsdecode({behind!r}))\n"
    (packages / "_allranks.pth").write_text(line, encoding="ascii")
    for each in (environment / "bin").iterdir():
        here = goal / "bin" / each.name
        if _is_script(each):
            # It looks for the Python beside itself: a link would lead it to the other's.
            shutil.copy(each, here)
        else:
            # A program finds its libraries from where it really lies.
            here.symlink_to(os.readlink(each) if each.is_symlink() else each)
    if not (goal / "bin" / "pip").exists():
        # Else the next on PATH is found, which would install into the system.
        (goal / "bin" / "pip").write_text(_NO_PIP)
        (goal / "bin" / "pip").chmod(0o755)


def packages_of(environment: Path) -> Path:
    """The folder of an environment's packages, which uv has made."""
    return next((environment / "lib").glob("*/site-packages"))


def _mirrored(source: Path, goal: Path, but: set[str]) -> None:
    for each in source.iterdir():
        if each.name in but:
            continue
        if each.is_dir() and not each.is_symlink():
            (goal / each.name).mkdir()
            _mirrored(each, goal / each.name, set())
        else:
            (goal / each.name).symlink_to(each)


def _is_script(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(2)
    return start == b"#!" or path.name.startswith("activate")
