"""Files that report how far they are read while they are sent."""

from __future__ import annotations

from typing import BinaryIO, cast

from allranks.plan.progress import OnProgress, Progress, unheard


class _Counted:
    """Has no descriptor, so that a socket reads it piece by piece."""

    def __init__(self, file: BinaryIO, before: Progress, report: OnProgress) -> None:
        self._file, self._before, self._report = file, before, report

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        self._report(self._before._replace(done=self._before.done + self._file.tell()))
        return self._file.read(size)


def counted(file: BinaryIO, before: Progress, report: OnProgress) -> BinaryIO:
    """The file as what is sent; ``before`` is how far all of the work is until then."""
    return file if report is unheard else cast(BinaryIO, _Counted(file, before, report))
