"""What allranks claims, measured beside its peers in the same run: ``python -m bench --help``."""

import importlib.util
import sys

if importlib.util.find_spec("allranks") is None:
    sys.exit(
        f"error: {sys.executable} has no allranks to measure\n\n"
        "hint: ./demo makes .venv with it; then .venv/bin/python -m bench launch"
    )
