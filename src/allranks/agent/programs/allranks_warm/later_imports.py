"""Modules that ranks import later, and which of them a server may import for the next ranks."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping

# Modules of Python that do something when they are imported.
_TALKATIVE = {"antigravity", "idlelib", "readline", "rlcompleter", "this", "turtledemo"}


def related(names: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Those of the ``names`` that belong to the distributions of the ``modules``, to what these
    require, or to Python. Others are a script's own choice, and may depend on what it did."""
    allowed = _required_by({module.partition(".")[0] for module in modules})
    allowed |= {*getattr(sys, "stdlib_module_names", ())} - _TALKATIVE
    return [name for name in names if name.partition(".")[0] in allowed]


def _required_by(packages: set[str]) -> set[str]:
    """The top-level packages of these packages' distributions and of all that those require."""
    from importlib import metadata  # lazy: only a server that learns needs it

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    of_package: Mapping[str, list[str]] = getattr(metadata, "packages_distributions", dict)()
    look = [normal(each) for package in packages for each in of_package.get(package, [package])]
    visited: set[str] = set()
    while look:
        name = look.pop()
        if name not in visited:
            visited.add(name)
            try:
                required = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            for requirement in required:
                match = re.match(r"[\w.-]+", requirement)
                if match and "extra ==" not in requirement:
                    look.append(normal(match[0]))
    own = {package for package, of in of_package.items() if visited & {*map(normal, of)}}
    return packages | own


def report_imports(path: str) -> None:
    """At the end of this rank, tell the server which modules it has imported."""
    before = frozenset(sys.modules)
    me = os.getpid()

    def report() -> None:
        if os.getpid() != me:
            return
        # Names that the import system knows: aliases in sys.modules are no modules.
        names = [
            name
            for name, module in list(sys.modules.items())
            if name not in before
            and getattr(getattr(module, "__spec__", None), "name", None) == name
        ]
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(names) + "\n")
        except OSError:
            pass

    atexit.register(report)
