"""Which packages are only installed as wheels, and how long a build from source may take."""

from __future__ import annotations

import time
from collections.abc import Sequence

from packaging.utils import canonicalize_name

from allranks.agent.environments import uv_messages
from allranks.agent.environments.conflicts import ALLOW, CANNOT
from allranks.core.environments.packages import requirement
from allranks.errors import AllranksError

# Seconds that one package may take to build where builds are not allowed.
LIMIT = 120.0
# Packages that take a compiler and many minutes. Their newest versions always have wheels, so that
# without one an old version was requested, or a new Python.
_SLOW = """
    h5py lightgbm llvmlite lxml matplotlib numba numpy opencv-python opencv-python-headless pandas
    pillow pyarrow scikit-image scikit-learn scipy spacy statsmodels tensorflow tokenizers torch
    torchaudio torchvision xgboost
""".split()  # noqa: SIM905  # many names, to be read


def wheels_only(rows: Sequence[str]) -> list[str]:
    """Arguments of uv for the requirements ``rows``: slow packages come as wheels, unless a row
    gives an address for one or excludes its wheels."""
    from_source = {
        canonicalize_name(name)
        for row in rows
        if row.startswith("--no-binary")
        for name in row.removeprefix("--no-binary").strip("= ").split(",")
    }
    addresses = (row for row in rows if "://" in row)
    from_source |= {canonicalize_name(row.partition("@")[0].strip()) for row in addresses}
    if ":all:" in from_source:
        return []
    return [word for name in _SLOW if name not in from_source for word in ("--only-binary", name)]


def pins(rows: Sequence[str]) -> list[str]:
    """The rows that request one version of a package."""
    parsed = ((row, requirement(row)) for row in rows)
    return [
        row
        for row, package in parsed
        if package is not None and any(part.operator == "==" for part in package.specifier)
    ]


class BuildClock:
    """Limits the time of builds in uv's output; without ``limit`` they may take any."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._began: dict[str, float] = {}

    def note(self, line: str) -> None:
        """Take note of a line that uv printed."""
        step = uv_messages.build_step(line)
        if step is None:
            return
        name, is_done = step
        if is_done:
            self._began.pop(name, None)
        else:
            self._began.setdefault(name, time.monotonic())

    def remaining(self) -> float | None:
        """Seconds until the next build is late; None if none is running."""
        if self._limit is None or not self._began:
            return None
        return max(0.0, min(self._began.values()) + self._limit - time.monotonic())

    def check(self) -> None:
        """Raise AllranksError if a build is late."""
        if self.remaining() != 0:
            return
        name = min(self._began, key=self._began.__getitem__)
        raise AllranksError(
            f"{CANNOT}: building {name} from source takes more than {self._limit:g} s",
            hint=f"request a version that has a wheel, or allow long builds: {ALLOW}",
        )
