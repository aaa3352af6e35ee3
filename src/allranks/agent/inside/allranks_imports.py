"""Lets a Python of a job import the job's copies of folders, instead of the submitter's own.

Python has put these folders into `sys.path`, from .pth files and PYTHONPATH, and setuptools into
the tables of its finders. Packages keep their place in the order.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def use_copies():  # type: () -> None
    """Replace the folders that the file in ALLRANKS_IMPORTS lists, one behind its copy."""
    try:
        with open(os.environ["ALLRANKS_IMPORTS"], "rb") as file:
            texts = [os.fsdecode(text) for text in file.read().split(b"\0")]
    except (KeyError, OSError):
        return
    pairs = [(texts[at], texts[at + 1]) for at in range(0, len(texts) - 1, 2)]

    def copy_of(path):  # type: (Any) -> Any
        if isinstance(path, str):
            for folder, copy in pairs:
                if path == folder or path.startswith(folder + "/"):
                    here = os.path.normpath(copy + path[len(folder) :])
                    # Tables name modules without `.py`.
                    return here if os.path.exists(here) or os.path.exists(here + ".py") else path
        return path

    sys.path[:] = [copy_of(path) for path in sys.path]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            for table in (getattr(module, "MAPPING", {}), getattr(module, "NAMESPACES", {})):
                for key, value in table.items():
                    is_list = isinstance(value, list)
                    table[key] = [copy_of(path) for path in value] if is_list else copy_of(value)
