"""A thin environment in front of a shared one: what a job installs stays in the layer.

Its Python finds the packages of both. Its folders are real, with links to the shared files; writing
a file replaces the link.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

_NO_PIP = """#!/bin/sh
echo "error: pip is not installed in this job's environment" >&2
echo "hint: add it to the requirements, or a folder that has it: --find-links DIR" >&2
exit 1
"""


def layer(environment: Path, target: Path) -> None:
    """Create a layer at ``target`` in front of ``environment``, which is relocatable."""
    libraries = packages_of(environment).parent
    packages = target / "lib" / libraries.name / "site-packages"
    packages.mkdir(parents=True)
    (target / "bin").mkdir()
    _link_tree(environment, target, {"bin", "lib", "lib64", "pyvenv.cfg"})
    _link_tree(environment / "lib", target / "lib", {libraries.name})
    (target / "lib64").symlink_to("lib")
    shutil.copyfile(environment / "pyvenv.cfg", target / "pyvenv.cfg")
    add_packages_of([str(libraries / "site-packages")], packages)
    for file in (environment / "bin").iterdir():
        program = target / "bin" / file.name
        if _is_script(file):
            # Scripts run the Python beside them: a link would lead to the shared one.
            shutil.copy(file, program)
        else:
            # Binaries find their libraries relative to their real path.
            program.symlink_to(os.readlink(file) if file.is_symlink() else file)
    if not (target / "bin" / "pip").exists():
        refuse_pip(target / "bin" / "pip")


def add_packages_of(folders: Sequence[str], packages: Path) -> None:
    """Let the Python of the layer with ``packages`` find those in ``folders``, behind its own."""
    # addsitedir also applies the .pth files there. Paths are in bytes, because Python reads the
    # file in the encoding of the rank's locale.
    lines = (
        f"import os, site; site.addsitedir(os.fsdecode({os.fsencode(folder)!r}))\n"
        for folder in folders
    )
    (packages / "_allranks.pth").write_text("".join(lines), encoding="ascii")


def refuse_pip(program: Path) -> None:
    """Say that there is no pip. Otherwise the next one on PATH would install into the system."""
    program.write_text(_NO_PIP)
    program.chmod(0o755)


def packages_of(environment: Path) -> Path:
    """The site-packages folder of an environment."""
    return next((environment / "lib").glob("*/site-packages"))


def _link_tree(source: Path, target: Path, but: set[str]) -> None:
    for file in source.iterdir():
        if file.name in but:
            continue
        if file.is_dir() and not file.is_symlink():
            (target / file.name).mkdir()
            _link_tree(file, target / file.name, set())
        else:
            (target / file.name).symlink_to(file)


def _is_script(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(2)
    return start == b"#!" or path.name.startswith("activate")
