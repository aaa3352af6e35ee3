"""What allranks is measured against, where it is installed; nothing here installs anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import procs


@dataclass(frozen=True, kw_only=True)
class Torch:
    """A Python that has torch."""

    python: str
    version: str

    @property
    def torchrun(self) -> list[str]:
        beside = Path(self.python).with_name("torchrun")
        return [str(beside)] if beside.exists() else [self.python, "-m", "torch.distributed.run"]


def torch(python: str | None) -> Torch | None:
    """torch of ``python`` (this one), or None."""
    python = str(Path(python).expanduser().absolute()) if python else sys.executable
    version = _said([python, "-c", "import torch; print(torch.__version__)"])
    return Torch(python=python, version=version) if version else None


def has(python: str, *modules: str) -> bool:
    """Whether that Python can import all of them."""
    return _said([python, "-c", f"import {', '.join(modules)}; print('yes')"]) == "yes"


def mpirun(ranks: int) -> tuple[list[str], str] | None:
    """The words before a command that start ``ranks`` of it, and the version; None without MPI."""
    found = shutil.which("mpirun")
    version = _said([found, "--version"]).partition("\n")[0] if found else ""
    if not found or not version:
        return None
    # Open MPI refuses root, and more ranks than cores, unless told; others do not know the words.
    flags = ["--allow-run-as-root", "--oversubscribe"] if "open" in version.lower() else []
    return [found, *flags, "-n", str(ranks)], version


def _said(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            env=procs.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
