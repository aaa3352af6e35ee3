"""What the metrics and images of a tracker's runs are called in a job's record."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

# A process writes these as parts of one run.
_PARTS = frozenset({"train", "validation", "val", "valid", "eval", "evaluation", "test"})
# SummaryWriter.add_hparams writes to a folder that is named after the time.
_TIME = re.compile(r"\d+\.\d+")
# Bytes of a part of a path.
_LONGEST = 100


class Prefixes:
    """What stands before the names of a run's metrics: nothing for a rank's first run, so that the
    usual script finds its own names. ``printed``: the metrics that the job has a pattern for."""

    def __init__(self, printed: Iterable[str] = ()) -> None:
        self._printed = frozenset(printed)
        self._first: dict[tuple[str, int], str] = {}
        # The tracker that told a metric first, by its rank and name.
        self._owners: dict[tuple[int, str], str] = {}
        self._below: dict[Path, bool] = {}

    def of_run(self, kind: str, rank: int, run: str, name: str) -> str:
        """``run``: what distinguishes it from the others, ``name``: what people call it."""
        first = self._first.setdefault((kind, rank), run)
        return "" if run == first else f"{name}/"

    def of_folder(self, rank: int, folder: Path) -> str:
        """Of TensorBoard's run in that folder, as TensorBoard calls runs: relative to the first."""
        first = self._first.setdefault(("tensorboard", rank), str(folder))
        if folder.name in _PARTS:
            return f"{folder.name}/"
        if _TIME.fullmatch(folder.name):
            return ""
        if self._is_below_a_run(folder):  # SummaryWriter.add_scalars: one for each of its curves
            return f"{folder.name}/"
        if str(folder) == first:
            return ""
        common = os.path.commonpath([first, folder])
        return f"{os.path.relpath(folder, common)}/"

    def _is_below_a_run(self, folder: Path) -> bool:
        if folder not in self._below:
            self._below[folder] = any(folder.parent.glob("events.out.tfevents.*"))
        return self._below[folder]

    def metric(self, kind: str, rank: int, name: str) -> str:
        """With the tracker's name, if the job prints the metric or another tracker has told it
        before."""
        if name in self._printed:
            return f"{name}/{kind}"
        owner = self._owners.setdefault((rank, name), kind)
        return name if owner == kind else f"{name}/{kind}"


def image_path(name: str, step: int, rank: int | None, suffix: str) -> str:
    """The path of an image below the folder of images."""
    folder = "/".join(_part(part) for part in name.split("/"))
    of_rank = "" if rank is None else f"_rank_{rank}"
    return f"{folder}/step_{step}{of_rank}{_part(suffix) if suffix else ''}"


def _part(text: str) -> str:
    plain = "".join(char if char.isprintable() else "_" for char in text)
    if plain.strip(". ") == "":
        plain = "_"
    data = plain.encode(errors="replace")
    if len(data) <= _LONGEST:
        return data.decode()
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f"{data[: _LONGEST - 9].decode(errors='ignore')}_{digest}"
