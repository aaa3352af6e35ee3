"""Read tars of any size entry by entry, forwards only, whoever wrote them.

Damaged and hostile ones raise one kind of error, and the sizes they claim never cause large
allocations.
"""

from __future__ import annotations

import math
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

from allranks.errors import AllranksError

CHUNK = 256 << 10
# Bytes of a header at most: tarfile may hold several hundred consecutive headers in memory.
_MAX_HEADER = 1 << 20
# Bytes of all headers of an entry: tarfile's time for a map of holes grows with their square.
_MAX_HEADERS = 2 << 20
# No name or number has so many digits in a row. Python before 3.11.10 takes hours for a million of
# them (CVE-2024-6232).
_MANY_DIGITS = re.compile(rb"[0-9]{256}")
# Bytes of padding after a tar's end.
_MAX_PADDING = 64 << 20
_TAR_KINDS: dict[bytes, Kind] = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, "file"),
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "hard link",
}
_VOLUME_LABEL = b"V"  # of GNU tar

Kind = Literal["file", "folder", "link", "hard link", "other"]


class Entry(NamedTuple):
    """An entry of an archive. ``target``: of links. ``pieces``: offset and size of each data region
    of a sparse file. ``read(n)`` returns the next 1 to n bytes of content."""

    name: str
    kind: Kind
    size: int
    mode: int
    mtime: float | None
    read: Callable[[int], bytes]
    target: str = ""
    pieces: Sequence[tuple[int, int]] | None = None

    @property
    def stored(self) -> int:
        """Bytes that are written to disk, without holes."""
        return self.size if self.pieces is None else sum(size for _, size in self.pieces)

    def content(self) -> Iterator[bytes]:
        """The content, piece by piece, without holes."""
        left = self.stored
        while left:
            piece = self.read(min(left, CHUNK))
            left -= len(piece)
            yield piece


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def stream_entries(
    name: str | Path, file: Readable, *, seeks: bool = False, has_end: bool = True
) -> Iterator[Entry]:
    """Iterate over the entries of a tar; read each before the next. Errors call it ``name``.
    ``has_end``: it has tar's mark of the end, and is truncated without it; else it has none, as
    the chunks of a job's code. Raises AllranksError, also while iterating."""
    archive = Path(name)
    source = _ForwardReader(archive, file, seeks)
    for header in _headers(archive, source, has_end):
        if header.type == _VOLUME_LABEL:
            continue
        kind = "file" if header.issparse() else _TAR_KINDS.get(header.type, "other")
        pieces: Any = header.sparse if header.issparse() else None
        size = header.size if kind == "file" else 0
        if size < 0 or any(at < 0 or n < 0 or at + n > size for at, n in pieces or ()):
            raise broken(archive, "a header is invalid")
        if size:
            source.seek(header.offset_data)
        yield Entry(
            header.name,
            kind,
            size,
            header.mode,
            header.mtime if math.isfinite(header.mtime) else None,
            source.read_some,
            target=header.linkname,
            pieces=pieces,
        )


def broken(archive: Path, why: object) -> AllranksError:
    return AllranksError(
        f"{archive.name} cannot be unpacked: {why}",
        where=str(archive),
        hint="the archive is truncated or damaged: create it or copy it again",
    )


class _ForwardReader:
    """The file object for tarfile: refuses to seek back or to read much at once."""

    def __init__(self, archive: Path, file: Any, seeks: bool) -> None:
        self._archive, self._file, self.seeks, self._at = archive, file, seeks, 0
        self.headers = 0  # bytes of the current entry's headers

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Bytes of a header."""
        self.headers += size
        if not 0 <= size <= _MAX_HEADER or self.headers > _MAX_HEADERS:
            raise broken(self._archive, "a header is too large")
        data = self.read_content(size)
        if size > tarfile.BLOCKSIZE and _MANY_DIGITS.search(data):
            raise broken(self._archive, "a header is invalid")
        return data

    def read_content(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        data = read_or_raise(self._archive, self._file, size)
        self._at += len(data)
        return data

    def read_some(self, size: int) -> bytes:
        """Between 1 and ``size`` bytes."""
        data = self.read_content(size)
        if not data:
            raise broken(self._archive, "unexpected end of the archive")
        return data

    def seek(self, to: int) -> None:
        if to < self._at:
            raise broken(self._archive, "a header points backwards")
        if self.seeks:
            self._file.seek(to)
            self._at = to
        while self._at < to:
            self.read_some(min(to - self._at, CHUNK))


def read_or_raise(archive: Path, file: Readable, size: int) -> bytes:
    # Decompressors raise OSError with and without a number, EOFError, and errors of their own.
    try:
        return file.read(size)
    except Exception as error:
        why = error.strerror if isinstance(error, OSError) and error.errno else str(error)
        raise broken(archive, why or type(error).__name__) from error


class _Header(tarfile.TarInfo):
    """Parses the headers of regular files three times as fast, without owners: with small files,
    most of the time is spent here."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        checksum, *numbers = (
            buf[at:end].strip(b" \0")
            for at, end in ((148, 156), (100, 108), (124, 136), (136, 148))
        )
        if (
            buf[156:157] != tarfile.REGTYPE
            or len(buf) != tarfile.BLOCKSIZE
            or not all(field.isdigit() for field in (checksum, *numbers))
            # The checksum counts its own field as blanks.
            or int(checksum, 8) != sum(buf) - sum(buf[148:156]) + 256
        ):
            return super().frombuf(buf, encoding, errors)
        header = cls(buf[:100].partition(b"\0")[0].decode(encoding, errors))
        header.mode, header.size, header.mtime = (int(field, 8) for field in numbers)
        if prefix := buf[345:500].partition(b"\0")[0]:
            header.name = f"{prefix.decode(encoding, errors)}/{header.name}"
        return header


def _headers(archive: Path, source: _ForwardReader, has_end: bool) -> Iterator[tarfile.TarInfo]:
    """Like ``iter(TarFile)``, but an invalid header is an error rather than the end, and headers
    are not kept in memory."""
    tar: Any = None
    while True:
        at = tar.offset if tar else 0
        try:
            if tar is None:
                tar = tarfile.TarFile(
                    fileobj=source,  # type: ignore[arg-type]
                    tarinfo=_Header,
                    encoding="utf-8",
                    errors="surrogateescape",
                )
                header = tar.next()
            else:
                source.seek(tar.offset)
                header = _Header.fromtarfile(tar)
        except tarfile.EOFHeaderError as error:  # type: ignore[attr-defined]
            if not has_end:
                raise broken(archive, "it ends in the middle") from error
            header = None
        except AllranksError:
            raise
        except Exception as error:  # the types differ between Python versions
            if not has_end and source.tell() == at:
                return
            raise broken(archive, str(error) or type(error).__name__) from error
        if header is None:
            break
        if tar.offset <= at:
            raise broken(archive, "a header points backwards")
        source.headers = 0
        yield header
    # Read the padding to the end, because compressed files end in a checksum.
    until = source.tell() + _MAX_PADDING
    while not source.seeks and source.read_content(CHUNK):
        if source.tell() > until:
            raise broken(archive, "data after the end of the archive")
