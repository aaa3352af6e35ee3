"""Runs as a Python starts for `allranks python`: answers Azure's imports, then runs the
sitecustomize that would have run without this one."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [each for each in sys.path if os.path.abspath(each) != here]
    sys.path[:] = elsewhere
    # For this process alone: jobs that it submits have a sitecustomize of their own.
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each != here]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    if not any(paths):
        del os.environ["PYTHONPATH"]
    try:
        from allranks.azure.finder import install  # lazy: it may not be installed

        install()
    except ImportError:
        print("allranks is not installed in this Python", file=sys.stderr)
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_begin()
