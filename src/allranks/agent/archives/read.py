"""Read archives of any size entry by entry, forwards only.

Damaged and hostile archives raise one kind of error, and the sizes they claim never cause large
allocations.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

from allranks.agent.archives import formats
from allranks.agent.archives.formats import broken, without_zstd
from allranks.agent.archives.safe_extract import CHUNK, Entry, Kind
from allranks.errors import AllranksError

if TYPE_CHECKING:
    import zipfile

# Bytes of a header at most: tarfile may hold several hundred consecutive headers in memory.
_MAX_HEADER = 1 << 20
# Bytes of all headers of an entry: tarfile's time for a map of holes grows with their square.
_MAX_HEADERS = 2 << 20
# No name or number has so many digits in a row. Python before 3.11.10 takes hours for a million of
# them (CVE-2024-6232).
_MANY_DIGITS = re.compile(rb"[0-9]{256}")
# Bytes of padding after a tar's end.
_MAX_PADDING = 64 << 20
# Bytes of a link's target in a zip, where it is stored as content.
_MAX_TARGET = 4096
_TAR_KINDS: dict[bytes, Kind] = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, "file"),
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "hard link",
}
_ZIP_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
}
_VOLUME_LABEL = b"V"  # of GNU tar


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def stream_entries(name: str, file: Readable) -> Iterator[Entry]:
    """Like ``open_entries``, of a tar that arrives from elsewhere; errors call it ``name``."""
    return _tar_entries(Path(name), _ForwardReader(Path(name), file, seeks=False))


@contextlib.contextmanager
def open_entries(archive: Path) -> Iterator[Iterator[Entry]]:
    """Iterate over entries; read each before the next. Raises AllranksError, also while
    iterating."""
    kind = _kind(archive)
    with contextlib.ExitStack() as stack:
        if kind == "zip":
            yield _zip_entries(archive, stack)
            return
        source = _ForwardReader(archive, _decompressed(archive, kind, stack), seeks=kind == "tar")
        yield _tar_entries(archive, source)


def size(archive: Path) -> int:
    """The unpacked size that a zip or plain tar states, in bytes. Raises AllranksError."""
    with contextlib.ExitStack() as stack:
        if _kind(archive) == "zip":
            return sum(member.file_size for member in _zip(archive, stack).infolist())
        entries = stack.enter_context(open_entries(archive))
        return sum(entry.size for entry in entries)


def _kind(archive: Path) -> str:
    """The format, by content first and then by name: some archives have a wrong suffix."""
    with archive.open("rb") as file:
        head = file.read(512)
    if head[257:262] == b"ustar":
        return "tar"
    for magic, kind in (
        (b"\x1f\x8b", "gz"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zst"),
        (b"PK\3\4", "zip"),
        (b"PK\5\6", "zip"),
    ):
        if head.startswith(magic):
            return kind
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return "bz2"
    return formats.kind(archive.name) or "tar"


def _decompressed(archive: Path, kind: str, stack: contextlib.ExitStack) -> Any:
    if kind == "gz":
        import gzip  # lazy: most shards are plain tars

        return stack.enter_context(gzip.open(archive))
    if kind == "bz2":
        import bz2  # lazy: as above

        return stack.enter_context(bz2.open(archive))
    if kind == "xz":
        import lzma  # lazy: as above

        return stack.enter_context(lzma.open(archive))
    if kind == "zst":
        return _Zstd(archive, stack)
    return stack.enter_context(archive.open("rb", buffering=CHUNK))


class _Zstd:
    """Output of the program zstd."""

    def __init__(self, archive: Path, stack: contextlib.ExitStack) -> None:
        import subprocess  # lazy: as above

        program = shutil.which("zstd")
        if program is None:
            raise without_zstd(archive)
        pipe = subprocess.PIPE
        with archive.open("rb") as file:
            self._child = subprocess.Popen(
                [program, "-dcq"], stdin=file, stdout=pipe, stderr=pipe, bufsize=CHUNK
            )
        stack.enter_context(self._child)
        stack.callback(self._child.kill)

    def read(self, size: int) -> bytes:
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        data = self._child.stdout.read(size)
        if len(data) < size and self._child.wait() != 0:
            message = self._child.stderr.read().decode(errors="replace").split("\n")[0]
            raise ValueError(message.strip() or "zstd failed")
        return data


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
        data = _read_or_raise(self._archive, self._file, size)
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


def _read_or_raise(archive: Path, file: Readable, size: int) -> bytes:
    # Decompressors raise OSError with and without a number, EOFError, and errors of their own.
    try:
        return file.read(size)
    except Exception as error:
        why = error.strerror if isinstance(error, OSError) and error.errno else str(error)
        raise broken(archive, why or type(error).__name__) from error


def _tar_entries(archive: Path, source: _ForwardReader) -> Iterator[Entry]:
    for header in _headers(archive, source):
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
            header.mtime,
            source.read_some,
            target=header.linkname,
            pieces=pieces,
        )


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


def _headers(archive: Path, source: _ForwardReader) -> Iterator[tarfile.TarInfo]:
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
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            header = None
        except AllranksError:
            raise
        except Exception as error:  # the types differ between Python versions
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


def _zip(archive: Path, stack: contextlib.ExitStack) -> zipfile.ZipFile:
    import zipfile  # lazy: most shards are plain tars

    try:
        file = stack.enter_context(zipfile.ZipFile(archive))
    except Exception as error:  # as above
        raise broken(archive, error) from error
    if any(info.flag_bits & 1 for info in file.infolist()):
        raise AllranksError(
            f"{archive.name} is protected by a password",
            where=str(archive),
            hint="pack it without a password",
        )
    return file


def _zip_entries(archive: Path, stack: contextlib.ExitStack) -> Iterator[Entry]:
    file = _zip(archive, stack)
    for info in file.infolist():
        # Only Unix (3) stores modes.
        mode = info.external_attr >> 16 if info.create_system == 3 else 0
        kind = _ZIP_KINDS.get(stat.S_IFMT(mode), "other" if stat.S_IFMT(mode) else "file")
        if info.is_dir():
            kind = "folder"
        name = _zip_name(info.filename, info.flag_bits)
        if kind in ("folder", "other"):
            yield Entry(name, kind, 0, mode or 0o777, None, _nothing)
            continue
        with _member(archive, file, info) as content:
            if kind == "link":
                target = os.fsdecode(_read_or_raise(archive, content, _MAX_TARGET))
                yield Entry(name, kind, 0, mode, None, _nothing, target=target)
                continue
            read = partial(_read_member, archive, content)
            yield Entry(name, kind, info.file_size, mode or 0o666, _mtime(info.date_time), read)
            # Reading past the end makes zipfile check the CRC.
            _read_or_raise(archive, content, 1)


def _read_member(archive: Path, content: Readable, size: int) -> bytes:
    data = _read_or_raise(archive, content, size)
    if not data:
        raise broken(archive, "unexpected end of the archive")
    return data


def _member(archive: Path, file: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return file.open(info)
    except NotImplementedError:
        raise AllranksError(
            f"{archive.name} uses a compression method that Python does not support",
            where=str(archive),
            hint="pack it with `zip`, or as .tar.gz",
        ) from None
    except Exception as error:  # as above
        raise broken(archive, error) from error


def _zip_name(name: str, flags: int) -> str:
    """Decode UTF-8 names without the UTF-8 flag, as macOS writes them."""
    if flags & 0x800:
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError:
        return name


def _mtime(date: tuple[int, int, int, int, int, int]) -> float | None:
    try:
        return time.mktime((*date, 0, 0, -1))
    except (ValueError, OverflowError):
        return None


def _nothing(size: int) -> bytes:
    return b""
