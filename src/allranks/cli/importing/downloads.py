"""Scripts that download by themselves, which nobody knows to be possible where they run."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from allranks import folder_trees
from allranks.cli.importing.finding import read_text

_CALLS = re.compile(
    r"\b(?:urlretrieve|urlopen|requests\.get|load_dataset|from_pretrained|snapshot_download"
    r"|hf_hub_download|nltk\.download|fetch_(?!all\b|one\b)[a-z]\w+|datasets\.\w+\.load_data)\("
    r"|\bdownload=True\b"
)
# Of a folder of scripts: more is no project's own code.
_MOST_FILES, _MOST_BYTES, _MOST_LISTED = 50, 200_000, 10_000


def downloads(text: str) -> bool:
    """Whether a program has a call that downloads data or a model."""
    return _CALLS.search(text) is not None


def files_below(folder: Path, pattern: str) -> list[Path]:
    """The files with such a name in a folder of a script's choice, which may be `/`: only the first
    files there are looked at, as a project has them."""
    first = itertools.islice(folder_trees.files(folder), _MOST_LISTED)
    return sorted(Path(file) for file in first if fnmatch(os.path.basename(file), pattern))


def doubts(place: Path) -> Iterator[str]:
    """For each script of a folder, or for the one, that downloads: that this was not tried."""
    scripts = files_below(place, "*.py")[:_MOST_FILES] if place.is_dir() else [place]
    for script in scripts:
        try:
            text = read_text(script)[:_MOST_BYTES]
        except OSError:
            continue
        if downloads(text):
            yield f"what {script.name} downloads"
