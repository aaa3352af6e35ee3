"""The packages of the current Python that are installed in development (`pip install -e`)."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from glob import escape, glob
from urllib.parse import unquote, urlsplit

from allranks.sdk.submit.current_environment import python_behind_shim
from allranks.snapshot.packages import Package

_OWN = "allranks"
_SITE = r"(?im)^include-system-site-packages\s*=\s*true"
_HOME = r"(?m)^home\s*=\s*(.+?)\s*$"
_ODD = "its editable install finds its modules by a program of its own"


def live_packages(base: Mapping[str, str]) -> list[Package]:
    """The packages in development that jobs of this shell find, whose variables ``base`` are, and
    the folders of PYTHONPATH. allranks itself is none of them."""
    packages = {
        folder: Package("the code", folder, only_inside=True)
        for folder in base.get("PYTHONPATH", "").split(":")
        if os.path.isabs(folder) and os.path.isdir(folder)
    }
    for python in _pythons(base.get("PATH", "").partition(":")[0]):
        for site in sites_of(python, base):
            for package in _editable(site):
                listed = packages.get(package.folder)
                if package.name == _OWN or (listed is not None and not listed.only_inside):
                    continue
                if package.name in {each.name for each in packages.values()}:
                    # Another Python has another one.
                    package = package._replace(name=f"{package.name}-{len(packages)}")
                packages[package.folder] = package
    return [*packages.values()]


def _pythons(bin: str) -> list[str]:
    """The Python in a folder. Of the shims of pyenv, asdf and mise all that they choose from, since
    asking takes longer than looking into all; they may choose another one in the job."""
    top, name = os.path.split(bin)
    if name == "shims":
        kinds = ("versions/*", "installs/python/*")
        pythons = [path for kind in kinds for path in glob(f"{escape(top)}/{kind}/bin/python")]
        if pythons:
            return sorted(pythons)
    python = python_behind_shim() or python_in(bin)
    return [python] if python else []


def python_in(bin: str) -> str:
    """The Python in a folder of programs; empty if it has none."""
    return next(
        (path for name in ("python", "python3") if os.path.exists(path := f"{bin}/{name}")), ""
    )


def sites_of(python: str, base: Mapping[str, str]) -> Iterator[str]:
    """The folders of installed packages of a Python."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    with contextlib.suppress(OSError), open(f"{prefix}/pyvenv.cfg", encoding="utf-8") as file:
        settings = file.read()
        yield from glob(f"{escape(prefix)}/lib/python3*/site-packages")
        home = re.search(_HOME, settings)
        if home is None or not re.search(_SITE, settings):
            return
        python = python_in(home[1])
    real = os.path.realpath(python)
    version = os.path.basename(real)  # `python3.11`
    user = base.get("PYTHONUSERBASE") or os.path.join(base.get("HOME", ""), ".local")
    prefixes = [os.path.dirname(os.path.dirname(each)) for each in (python, real)]
    for top in dict.fromkeys([user, *prefixes]):
        for within in ("lib", "local/lib"):
            yield f"{top}/{within}/{version}/site-packages"
            yield f"{top}/{within}/{version}/dist-packages"
    yield f"{prefixes[1]}/lib/python3/dist-packages"


def _editable(site: str) -> tuple[Package, ...]:
    """The packages in development in one of these folders."""
    try:
        return _editable_since(site, os.stat(site).st_mtime_ns)
    except OSError:
        return ()


@functools.cache
def _editable_since(site: str, _changed_ns: int) -> tuple[Package, ...]:
    """Read once for all jobs of a list: an installation changes the time. Raises OSError."""
    return tuple(_read_editable(site))


def _read_editable(site: str) -> Iterator[Package]:
    """Raises OSError."""
    for name in sorted(os.listdir(site)):
        path = f"{site}/{name}"
        with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
            if name.endswith(".dist-info"):
                if not os.access(f"{path}/direct_url.json", os.F_OK):
                    continue  # as most: cheaper than an error
                with open(f"{path}/direct_url.json", encoding="utf-8") as file:
                    origin = json.load(file)
                if origin["dir_info"]["editable"]:
                    folder = unquote(urlsplit(origin["url"]).path)
                    yield Package(name.partition("-")[0], folder, _problem(site, path))
            elif name.endswith(".egg-link"):  # of `setup.py develop`
                with open(path, encoding="utf-8") as file:
                    yield Package(name.removesuffix(".egg-link"), file.readline().strip())


def _problem(site: str, info: str) -> str:
    """Why another folder cannot stand in for the one that a package is imported from."""
    with open(f"{info}/RECORD", encoding="utf-8") as file:
        installed = [line.partition(",")[0] for line in file]
    for name in installed:
        if name.endswith(".pth"):
            with open(f"{site}/{name}", encoding="utf-8") as file:
                lines = [line for line in file if line.startswith("import")]
            if any("__editable___" not in line for line in lines):
                return _ODD
    return ""
