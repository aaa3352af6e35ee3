"""`allranks python SCRIPT`: run a program for Azure ML or simple-sagemaker as it is."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from allranks.cli.output import show
from allranks.cli.parser import Parser

_ANSWERED = ("azure.ai.ml", "azureml.core", "simple_sagemaker")
_INSIDE = Path(__file__).parents[2] / "compat" / "azure" / "inside"


def python_options(parser: Parser) -> None:
    parser.is_for_another = True
    what = "as for python: SCRIPT, -m MODULE or -c CODE, and its arguments"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT …", help=what)


def python(options: argparse.Namespace) -> int:
    """Become the Python that runs the program."""
    return _become(options.words[1:])  # behind `--`


def _become(words: Sequence[str]) -> NoReturn:
    for name in filter(_is_installed, _ANSWERED):
        is_first = name.startswith("azure") and os.environ.get("ALLRANKS_IMPORTS") != "0"
        if is_first:
            rest = "too: allranks answers the program; ALLRANKS_IMPORTS=0 gives the installed one"
            show.talk(f"{name} is installed here, {rest}")
        else:
            show.talk(f"{name} is installed here: the program uses it, and not allranks")
    before = os.environ.get("PYTHONPATH")
    path = f"{_INSIDE}{os.pathsep}{before}" if before else str(_INSIDE)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *words], {**os.environ, "PYTHONPATH": path})


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
