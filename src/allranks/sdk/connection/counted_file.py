"""Files that report progress while they are uploaded."""

from __future__ import annotations

from typing import BinaryIO, cast

from allranks.core.transfer_progress import OnProgress, Progress, unheard


class _Counted:
    """Has no file descriptor, so sockets read it in pieces."""

    def __init__(self, file: BinaryIO, before: Progress, report: OnProgress) -> None:
        self._file, self._before, self._report = file, before, report

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        self._report(self._before._replace(done=self._before.done + self._file.tell()))
        return self._file.read(size)


def counted(file: BinaryIO, before: Progress, report: OnProgress) -> BinaryIO:
    """A file for upload; ``before`` is the progress of the whole upload so far."""
    return file if report is unheard else cast(BinaryIO, _Counted(file, before, report))
