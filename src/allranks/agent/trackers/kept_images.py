"""Which images of trackers a job keeps, and where in its record."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from allranks import folder_trees
from allranks.agent.trackers.names import image_path
from allranks.agent.trackers.readings import LARGEST_IMAGE, Image
from allranks.core.amounts import counted

# Images of a job, and their bytes.
_IMAGES, _BYTES = 10_000, 1 << 30
FOLDER = "artifacts/logs/images"


class KeptImages:
    """Names the images of one job, within its bounds."""

    def __init__(self) -> None:
        self._numbers = Counter[str]()
        self._bytes = 0
        self._left_out = Counter[str]()

    @property
    def count(self) -> int:
        return self._numbers.total()

    def keep(
        self, image: Image, rank: int | None, root: Path, put: Callable[[str, bytes], None]
    ) -> None:
        """Call ``put`` with the path of an image below ``FOLDER`` and its bytes, which are a file
        below ``root`` or in the tracker's own. One that cannot be read or put is left out."""
        try:
            with _opened(image.source, root) as source:
                size = source.seek(0, os.SEEK_END)
                source.seek(0)
                if why := self._refusal(image, size):
                    self._left_out[why] += 1
                    return
                path = image_path(image.name, image.step, rank, image.suffix)
                number = self._numbers[path]
                self._numbers[path] += 1
                self._bytes += size
                stem, suffix = os.path.splitext(path)
                put(f"{stem}_{number}{suffix}" if number else path, source.read(size))
        except OSError as error:
            self._left_out[(error.strerror or str(error)).lower()] += 1

    def notes(self) -> list[str]:
        return [
            f"{counted(count, 'image')} {'was' if count == 1 else 'were'} left out: {why}"
            for why, count in self._left_out.items()
        ]

    def _refusal(self, image: Image, size: int) -> str:
        if image.source is None or size > LARGEST_IMAGE:
            return "each is larger than 10 MB; they are in the tracker's own files"
        if self.count >= _IMAGES or self._bytes + size > _BYTES:
            return "there are too many"
        return ""


def _opened(source: Path | bytes | None, root: Path) -> BinaryIO:
    """Raises OSError for a path that is not a file of the job."""
    if isinstance(source, Path):
        return folder_trees.open_file(source, below=root)
    return io.BytesIO(source or b"")
