"""Single files that run as programs beside ranks, by whatever Python is there.

They import only the standard library, and each starts by its path (``path_of``).
"""

import os


def path_of(name: str) -> str:
    """The absolute path of a program of this folder: ``relay.py``."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
