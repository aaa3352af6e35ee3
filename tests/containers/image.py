"""An image without a registry: this machine's bash, a few programs beside it, and this Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from uv import find_uv_bin

PROGRAMS = ("bash", "cat", "df", "env", "hostname", "id", "ls", "sleep", "setsid")
# Of the standard library what no test runs, and what is large.
_LEFT_OUT = {"test", "site-packages", "__pycache__", "idlelib", "tkinter", "lib2to3", "ensurepip"}
PYTHON = os.path.join(sys.base_prefix, "bin")


def write(goal: Path, python: bool = True) -> None:
    """The root file system, as a tar; without ``python`` only the libraries that this one needs,
    because it does not find those beside itself when it is copied."""
    found: set[str] = set()
    for program in PROGRAMS:
        _add(found, shutil.which(program) or program)
    if python:
        _add_python(found)
    else:
        modules = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
        for path in (Path(PYTHON, "python3"), *modules):
            _add_libraries(found, str(path))
    with tarfile.open(goal, "w") as tar:
        # By the folders' real paths: to a tar, /lib64 and /usr/lib64 are two.
        for path in sorted({_in_real_folder(each) for each in found}):
            tar.add(path)
        links = {
            name: f"usr/{name}" for name in ("bin", "lib", "lib64") if os.path.islink(f"/{name}")
        }
        if python:
            links[f"{PYTHON[1:]}/python"] = "python3"
        for name, to in links.items():
            if f"/{name}" not in found:
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, to
                tar.addfile(entry)
        entry = tarfile.TarInfo("tmp")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(entry)


def _add_python(found: set[str]) -> None:
    _add(found, os.path.join(PYTHON, "python3"))
    _add_libraries(found, find_uv_bin())
    for folder, below, files in os.walk(sysconfig.get_path("stdlib")):
        below[:] = [name for name in below if name not in _LEFT_OUT and "config-" not in name]
        for name in files:
            _add(found, os.path.join(folder, name), ".so" in name)


def _add(found: set[str], path: str, loads: bool = True) -> None:
    """The file, those that it is a link to, and the libraries it ``loads``."""
    while path not in found:
        found.add(path)
        if os.path.islink(path):
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
            continue
        if not loads:
            return
        _add_libraries(found, path)


def _add_libraries(found: set[str], path: str) -> None:
    told = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    for word in told.split():
        if word.startswith("/"):
            _add(found, word)


def _in_real_folder(path: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
