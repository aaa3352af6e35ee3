"""Runs as a Python starts for `allranks python`, and as those start that it starts, such as a
notebook's: answers Azure's imports, then runs the sitecustomize that would have run without it."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [each for each in sys.path if os.path.abspath(each) != here]
    sys.path[:] = elsewhere
    try:
        from allranks.compat.azure.finder import install  # lazy: a child may be another Python

        install()
    except ImportError:
        pass
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_begin()
