"""Read archives of any size and format entry by entry, forwards only; see ``tars``."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from allranks.agent.archives import formats
from allranks.agent.archives.formats import without_zstd
from allranks.errors import AllranksError
from allranks.tars import CHUNK, Entry, Kind, Readable, broken, read_or_raise, stream_entries

if TYPE_CHECKING:
    import zipfile

# Bytes of a link's target in a zip, where it is stored as content.
_MAX_TARGET = 4096
_ZIP_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
}


@contextlib.contextmanager
def open_entries(archive: Path) -> Iterator[Iterator[Entry]]:
    """Iterate over entries; read each before the next. Raises AllranksError, also while
    iterating."""
    kind = _kind(archive)
    with contextlib.ExitStack() as stack:
        if kind == "zip":
            yield _zip_entries(archive, stack)
            return
        file = _decompressed(archive, kind, stack)
        yield stream_entries(archive, file, seeks=kind == "tar")


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
                target = os.fsdecode(read_or_raise(archive, content, _MAX_TARGET))
                yield Entry(name, kind, 0, mode, None, _nothing, target=target)
                continue
            read = partial(_read_member, archive, content)
            yield Entry(name, kind, info.file_size, mode or 0o666, _mtime(info.date_time), read)
            # Reading past the end makes zipfile check the CRC.
            read_or_raise(archive, content, 1)


def _read_member(archive: Path, content: Readable, size: int) -> bytes:
    data = read_or_raise(archive, content, size)
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
