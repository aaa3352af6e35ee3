"""The agent's own code as one file, for nodes that do not share the disk it is installed on."""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

# What an agent imports. Besides these it needs only Python and, to measure GPUs, pynvml.
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
    """Yield (name, content) of each file, sorted; names are relative to a PYTHONPATH entry."""
    root = Path(__file__).parents[1]
    for path in sorted({path for part in _PARTS for path in root.glob(part)}):
        yield f"allranks/{path.relative_to(root).as_posix()}", path.read_bytes()
    spec = importlib.util.find_spec(_GPUS)
    if spec is not None and spec.origin is not None:
        yield f"{_GPUS}.py", Path(spec.origin).read_bytes()


def archive(goal: Path) -> None:
    """Write a reproducible tar of ``files`` to ``goal``, atomically."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    temporary = goal.with_suffix(".new")
    with tarfile.open(temporary, "w") as tar:
        for name, content in files():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    temporary.replace(goal)
