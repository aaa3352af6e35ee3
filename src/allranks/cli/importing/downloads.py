"""Scripts that download by themselves, which nobody knows to be possible where they run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from allranks.cli.importing.finding import read_text

_CALLS = re.compile(
    r"\b(?:urlretrieve|urlopen|requests\.get|load_dataset|from_pretrained|snapshot_download"
    r"|hf_hub_download|nltk\.download|fetch_(?!all\b|one\b)[a-z]\w+|datasets\.\w+\.load_data)\("
    r"|\bdownload=True\b"
)
# Of a folder of scripts: more is no project's own code.
_MOST_FILES, _MOST_BYTES = 50, 200_000


def downloads(text: str) -> bool:
    """Whether a program has a call that downloads data or a model."""
    return _CALLS.search(text) is not None


def doubts(place: Path) -> Iterator[str]:
    """For each script of a folder, or for the one, that downloads: that this was not tried."""
    scripts = sorted(place.rglob("*.py"))[:_MOST_FILES] if place.is_dir() else [place]
    for script in scripts:
        try:
            text = read_text(script)[:_MOST_BYTES]
        except OSError:
            continue
        if downloads(text):
            yield f"what {script.name} downloads"
