"""A thin environment in front of another: what is installed into it stays in it.

Its programs are the other's, run by its own Python, which finds the packages of both.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def layer(environment: Path, goal: Path) -> None:
    """Make ``goal`` one in front of ``environment``, which uv has made relocatable."""
    libraries = next((environment / "lib").glob("python3*"))
    packages = goal / "lib" / libraries.name / "site-packages"
    packages.mkdir(parents=True)
    (goal / "bin").mkdir()
    _linked(environment, goal, {"bin", "lib", "lib64", "pyvenv.cfg"})
    _linked(environment / "lib", goal / "lib", {libraries.name})
    (goal / "lib64").symlink_to("lib")
    shutil.copyfile(environment / "pyvenv.cfg", goal / "pyvenv.cfg")
    # Not its path alone: what its own .pth files add is to be found, too.
    behind = str(libraries / "site-packages")
    (packages / "_allranks.pth").write_text(f"import site; site.addsitedir({behind!r})\n")
    for each in (environment / "bin").iterdir():
        here = goal / "bin" / each.name
        if _is_script(each):
            # It looks for the Python beside itself: a link would lead it to the other's.
            shutil.copy(each, here)
        else:
            # A program finds its libraries from where it really lies.
            here.symlink_to(os.readlink(each) if each.is_symlink() else each)


def _linked(source: Path, goal: Path, but: set[str]) -> None:
    for each in source.iterdir():
        if each.name not in but:
            (goal / each.name).symlink_to(each)


def _is_script(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(2)
    return start == b"#!" or path.name.startswith("activate")
