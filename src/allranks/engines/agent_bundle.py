"""The agent's own code as one file, for nodes that do not share the disk it is installed on."""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

# What an agent imports; it needs nothing but Python beside it, and for GPUs one module.
_PARTS = (
    "*.py",
    "agent/**/*.py",
    "agent/inside/*.sh",
    "plan/**/*.py",
    "snapshot/__init__.py",
    "snapshot/files.py",
    "spec/**/*.py",
)
_GPUS = "pynvml"


def files() -> Iterator[tuple[str, bytes]]:
    """Each file's name, below the folder that goes on PYTHONPATH, and its content; in order."""
    root = Path(__file__).parents[1]
    for path in sorted({path for part in _PARTS for path in root.glob(part)}):
        yield f"allranks/{path.relative_to(root).as_posix()}", path.read_bytes()
    found = importlib.util.find_spec(_GPUS)
    if found is not None and found.origin is not None:
        yield f"{_GPUS}.py", Path(found.origin).read_bytes()


def archive(goal: Path) -> None:
    """Write a tar of them, the same bytes for the same code; nobody sees half of it."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    beside = goal.with_suffix(".new")
    with tarfile.open(beside, "w") as tar:
        for name, content in files():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    beside.replace(goal)
